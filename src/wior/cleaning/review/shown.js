// What is shown of the rows, and what is said about it.

const data = takeData();
const decisions = new Decisions(data);
const pictures = data.pictures && new Pictures(data.pictures);
const page = {
  data,
  decisions,
  pictures,
  fields: chooseFields(data),
  linesOf: field => gallery.linesOf(field),
  words: () => filters.words,
  indexOf: slot => gallery.shown.indexOf(slot),
};
const gallery = new Gallery(find("rows"), page);
const rowView = new RowView(page);

const filters = {
  threshold: data.threshold,
  given: -1,
  suggested: -1,
  state: "any",
  near: false,
  verified: false, // verified rows in place of those to decide
  sort: "score",
  words: "",
};
let counts;
let reachable = 0; // flagged rows that can be looked at: the first slots
let matches = null; // of the search, for each slot

const histogram = new Histogram(data, setThreshold);
const classBars = new ClassBars(data, given =>
  choosePair(filters.given === given && filters.suggested < 0 ? -1 : given, -1),
);
const matrix = new Matrix(data, (given, suggested) => {
  const same = filters.given === given && filters.suggested === suggested;
  choosePair(same ? -1 : given, same ? -1 : suggested);
});

function recount() {
  counts = count(data, filters.threshold);
  reachable = slotsBelow(data.scores.subarray(0, data.open), filters.threshold);
  const share = data.toJudge ? counts.flagged / data.toJudge : 0;
  find("flagged").textContent = whole(counts.flagged);
  find("flagged-unit").textContent = counts.flagged === 1 ? "row flagged" : "rows flagged";
  find("share").textContent = `${percent(share)} of ${rowsText(data.toJudge)}${data.verified ? " that nobody verified" : ""}`;
  find("threshold").value = filters.threshold;
  find("threshold").setAttribute(
    "aria-valuetext",
    `${decimal(filters.threshold)}, ${rowsText(counts.flagged)} flagged`,
  );
  find("threshold-reset").hidden = filters.threshold === data.threshold;
  histogram.show(filters.threshold);
  refilter();
}

function refilter(where) {
  classBars.show(counts, filters.suggested < 0 ? filters.given : -1);
  matrix.show(counts, filters.given, filters.suggested);
  const shown = chosen();
  find("rows").hidden = !shown.length;
  gallery.show(shown, where);
  find("verified-toggle").setAttribute("aria-pressed", String(filters.verified));
  find("rows").setAttribute("aria-label", filters.verified ? "Verified rows" : "Flagged rows");
  const some = [filters.given >= 0, filters.suggested >= 0, filters.state !== "any", filters.near].filter(Boolean);
  find("clear").hidden = !some.length && filters.words === "";
  find("filters-toggle").textContent = some.length ? `Filters (${some.length})` : "Filters";
  find("loading").hidden = true;
  showEmpty();
  showProgress();
}

// orders of the slots, made when somebody sorts by them
const orders = { score: null };

function order() {
  const by = filters.sort;
  if (by === "score") return null;
  if (!orders[by]) {
    const values = {
      confidence: data.confidence.map(value => -value),
      given: data.given,
      suggested: data.suggested,
      place: data.places,
    }[by];
    const slots = Uint32Array.from({ length: data.slots }, (_, slot) => slot);
    orders[by] = slots.sort((one, other) => values[one] - values[other] || one - other);
  }
  return orders[by];
}

// which codes a choice among decisions admits
const ADMITTED = {
  any: () => true,
  none: code => code === UNDECIDED,
  some: code => code !== UNDECIDED,
  keep: code => code === KEEP,
  fix: code => code >= FIX,
  ambiguous: code => code === AMBIGUOUS,
  skip: code => code === SKIP,
};

function chosen() {
  const { given, suggested } = filters;
  const admits = ADMITTED[filters.state];
  const near = filters.near && haveNear(data);
  const sorted = order();
  const [first, end] = filters.verified ? [data.open, data.slots] : [0, reachable];
  const found = new Uint32Array(end - first);
  let length = 0;
  for (let i = sorted ? 0 : first; i < (sorted ? sorted.length : end); i++) {
    const slot = sorted ? sorted[i] : i;
    if (slot < first || slot >= end) continue;
    if (given >= 0 && data.given[slot] !== given) continue;
    if (suggested >= 0 && data.suggested[slot] !== suggested) continue;
    if (!admits(decisions.codes[slot])) continue;
    if (near && !near[slot]) continue;
    if (matches && !matches[slot]) continue;
    found[length++] = slot;
  }
  return found.subarray(0, length);
}

let texts = null;

function search() {
  const words = find("search").value.trim().toLowerCase();
  filters.words = words;
  if (!words) matches = null;
  else {
    texts ??= data.ids
      .slice(0, data.slots)
      .map((id, slot) => [id, ...(data.records[slot] ?? [])].join("\n").toLowerCase());
    matches = Uint8Array.from(texts, text => text.includes(words));
  }
  refilter({ restart: true });
}

function setThreshold(value, { typed = false } = {}) {
  filters.threshold = Math.min(1, Math.max(0, value));
  if (!typed) find("threshold-number").value = String(Number(filters.threshold.toPrecision(4)));
  recount();
}

function choosePair(given, suggested) {
  filters.given = given;
  filters.suggested = suggested;
  chooseOption(find("given-filter"), given);
  chooseOption(find("suggested-filter"), suggested);
  refilter({ restart: true });
}

// as in the cards, a list of all classes is made when it is needed
function fillClasses(select) {
  if (select.options.length > 1 || !data.classes.length) return;
  data.classes.forEach((name, label) => select.append(new Option(name, label)));
}

function chooseOption(select, label) {
  if (label >= 0) fillClasses(select);
  select.value = String(label);
}

function chooseVerified(verified) {
  filters.verified = verified;
  refilter({ restart: true });
}

function clearFilters() {
  find("search").value = "";
  filters.state = find("state-filter").value = "any";
  filters.verified = false;
  filters.near = find("near-filter").checked = false;
  filters.words = "";
  matches = null;
  choosePair(-1, -1);
}

// numbers change with every movement of the slider: a screen reader is told when they have settled
let telling;

function showProgress() {
  const decided = decisions.count(reachable);
  const lines = decisions.count() + decisions.corrections;
  find("progress").max = Math.max(1, reachable);
  find("progress").value = decided;
  find("progress-text").textContent = reachable
    ? `${whole(decided)} of ${whole(reachable)} decided`
    : "nothing to decide";
  find("undo").disabled = !decisions.past.length;
  find("export").disabled = !lines;
  find("export").textContent = lines ? `Export CSV (${whole(lines)})` : "Export CSV";
  const shown = gallery.shown.length;
  const unseen = filters.verified ? 0 : counts.flagged - reachable;
  find("shown").textContent = filters.verified
    ? `${countText(shown, "verified row", "verified rows")} shown`
    : `${rowsText(shown)} shown${unseen ? `; ${whole(unseen)} flagged rows of higher scores only count` : ""}`;
  find("keep-all").disabled = find("fix-all").disabled = !shown || filters.verified;
  const { flagged } = counts;
  clearTimeout(telling);
  telling = setTimeout(() => {
    find("numbers").textContent = `${rowsText(flagged)} flagged, ${whole(shown)} shown, ${whole(decided)} decided`;
  }, 700);
}

function showEmpty() {
  const empty = !gallery.shown.length;
  find("empty").hidden = !empty;
  if (!empty) return;
  const button = find("empty-button");
  button.hidden = false;
  let more = "";
  if (!data.rows) {
    find("empty-text").textContent = "There are no rows in this data.";
    button.hidden = true;
  } else if (filters.verified) {
    find("empty-text").textContent = "No verified row matches the filters.";
    button.textContent = "Clear filters";
    button.onclick = clearFilters;
  } else if (!data.open) {
    find("empty-text").textContent = "Every row is verified.";
    button.hidden = true;
  } else if (counts.flagged) {
    const done = filters.state === "none" && decisions.count(reachable) === reachable;
    find("empty-text").textContent = done ? "Every flagged row is decided." : "No flagged row matches the filters.";
    more = done ? "Export the decisions to use them, or raise the threshold to go on." : "";
    button.textContent = "Clear filters";
    button.onclick = clearFilters;
  } else {
    const next = Math.min(20, data.open);
    const above = Math.min(1, Math.ceil(1000 * data.scores[next - 1] + 1) / 1000);
    find("empty-text").textContent =
      `No row is flagged: no score lies below ${Number(filters.threshold.toPrecision(3))}.`;
    more = "That is good news, if the threshold suits the data. A higher one shows the rows that are least certain.";
    button.textContent = `Look at scores below ${above}`;
    button.onclick = () => setThreshold(above);
    button.hidden = !isBelow(data.scores[0], above);
  }
  find("empty-more").textContent = more;
  find("empty-more").hidden = !more;
}

const REFUSED = "This browser does not keep decisions for this page: export them before you close it.";

decisions.kept.refused = () => {
  showLimits();
  say(REFUSED);
};

function showLimits() {
  const said = [];
  const { open, toJudge, verified, slots, columns } = data;
  const records = Math.min(slots, data.records.length);
  if (open < toJudge)
    said.push(
      `The ${whole(open)} rows of the lowest scores can be looked at here. The other ${whole(toJudge - open)} count ` +
        "in the numbers, the histogram and the matrix.",
    );
  if (slots - open < verified)
    said.push(
      `Of ${whole(verified)} verified rows ${whole(slots - open)} can be looked at here, those with a wrong label first.`,
    );
  if (data.cut)
    said.push(
      `There is no room for all of the long texts: in ${countText(data.cut, "record", "records")} a text ends ` +
        "with … and is not whole here, in the search neither.",
    );
  if (columns.length && records < slots)
    said.push(
      `There is room for ${whole(records)} records, those of the lowest scores; ` +
        "other rows show their id and labels.",
    );
  if (pictures && pictures.layout.count < slots)
    said.push(
      `There is room for ${whole(pictures.layout.count)} pictures, those of the lowest scores; ` +
        "other rows show their id and labels.",
    );
  if (!decisions.kept.works) said.push(REFUSED);
  find("limits").replaceChildren(...said.map(text => make("p", "remark", text)));
}

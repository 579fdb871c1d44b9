// The page begins: its parts are filled and listened to.

// several changes in one frame are one
function oncePerFrame(act) {
  let waiting;
  return () => {
    waiting ??= requestAnimationFrame(() => {
      waiting = undefined;
      act();
    });
  };
}

const on = (id, kind, act) => find(id).addEventListener(kind, act);

function listenToFilters() {
  on(
    "threshold",
    "input",
    oncePerFrame(() => setThreshold(Math.round(1000 * Number(find("threshold").value)) / 1000)),
  );
  on("threshold-number", "input", () => {
    const { value, valueAsNumber } = find("threshold-number");
    if (value && valueAsNumber >= 0 && valueAsNumber <= 1) setThreshold(valueAsNumber, { typed: true });
  });
  on("threshold-number", "change", () => setThreshold(filters.threshold));
  on("threshold-reset", "click", () => setThreshold(data.threshold));
  let typing;
  on("search", "input", () => {
    clearTimeout(typing);
    typing = setTimeout(search, 120);
  });
  for (const [id, name, text] of [
    ["given-filter", "given", "any label"],
    ["suggested-filter", "suggested", "any label"],
  ]) {
    const select = find(id);
    select.append(new Option(text, -1));
    if (data.classes.length <= 500) fillClasses(select);
    for (const kind of ["pointerdown", "focus"]) on(id, kind, () => fillClasses(select));
    on(id, "change", () => {
      filters[name] = Number(select.value);
      refilter({ restart: true });
    });
  }
  on("state-filter", "change", () => {
    filters.state = find("state-filter").value;
    refilter({ restart: true });
  });
  on("near-filter", "change", () => {
    filters.near = find("near-filter").checked;
    refilter({ restart: true });
  });
  on("sort", "change", () => {
    filters.sort = find("sort").value;
    refilter({ restart: true });
  });
  on("clear", "click", clearFilters);
}

function listen() {
  listenToFilters();
  on("verified-toggle", "click", () => chooseVerified(!filters.verified));
  on("keep-all", "click", () => decideAll("keep"));
  on("fix-all", "click", () => decideAll("fix"));
  on("undo", "click", undo);
  on("export", "click", exportCsv);
  on("help", "click", () => find("help-dialog").showModal());
  on("row-note", "input", () => {
    decisions.writeNote(rowView.slot, find("row-note").value);
    gallery.refresh();
  });
  for (const id of ["overview", "filters"]) on(`${id}-toggle`, "click", () => unfold(id));
  on("overview-close", "click", () => {
    unfold("overview");
    find("overview-toggle").focus();
  });
  listenToImport("decisions", importCsv);
  listenToExported();
  listenToRows();
  document.addEventListener("keydown", onKey);
  decisions.warnBeforeLeaving();
}

// where the window is narrow, the overview and the filters are behind buttons
function unfold(id) {
  const unfolded = find(id).classList.toggle("unfolded");
  find(`${id}-toggle`).setAttribute("aria-expanded", String(unfolded));
  if (unfolded && id === "overview") scrollTo({ top: 0, behavior: "instant" });
}

function listenToRows() {
  const rows = find("rows");
  const cardOf = event => event.target.closest(".card")?.card;
  rows.addEventListener("focusin", event => {
    const card = cardOf(event);
    if (!card || card.index === gallery.current) return;
    gallery.current = card.index;
    gallery.mark();
  });
  rows.addEventListener("click", event => {
    const card = cardOf(event);
    if (!card) return;
    gallery.current = card.index;
    gallery.mark();
    clickOn(event);
  });
  rows.addEventListener("change", chooseLabel);
  rowView.dialog.addEventListener("click", clickOn);
  rowView.dialog.addEventListener("change", chooseLabel);
  rowView.dialog.addEventListener(
    "close",
    () => gallery.shown.length && gallery.choose(gallery.current, { focus: true }),
  );
  find("row-previous").addEventListener("click", () => move(gallery.current - 1));
  find("row-next").addEventListener("click", () => move(gallery.current + 1));
  find("row-close").addEventListener("click", () => rowView.dialog.close());
}

function clickOn(event) {
  const button = event.target.closest("button");
  const { decide: word, likely, go } = button?.dataset ?? {};
  const pressed = button?.getAttribute("aria-pressed") === "true";
  if (word) decide(pressed ? "clear" : word);
  else if (likely) pressed ? decide("clear") : decideLabel(Number(likely));
  else if (go) move(Number(go));
  else if (button?.dataset.open !== undefined || event.target.closest("#rows .picture, #rows .id")) showRow();
}

function chooseLabel(event) {
  if (!event.target.matches(".label-choice")) return;
  const label = Number(event.target.value);
  if (label !== OTHER) return decide("fix", { label });
  currentActions().show(currentSlot());
  searchLabel();
}

function begin() {
  document.title = `${data.title} · label review`;
  find("title").textContent = data.title;
  showFacts(data.facts);
  find("estimate").textContent = data.estimate;
  find("estimate").hidden = !data.estimate;
  find("near-box").hidden = !data.similar;
  find("verified-toggle").hidden = !data.verified;
  find("verified-toggle").textContent = countText(data.verified, "verified row", "verified rows");
  find("row-likely").hidden = find("likely-keys").hidden = !data.likely;
  find("histogram").append(histogram.svg);
  find("class-bars").append(classBars.list, classBars.rest);
  find("matrix").append(make("div", "scroll"));
  find("matrix").firstChild.append(matrix.table);
  if (data.classes.length > SIDE)
    find("matrix").append(matrix.remark, make("h3", "", "Most frequent pairs"), matrix.pairs);
  find("curves-panel").hidden = !data.curves.length;
  find("curves").append(...data.curves.map(curveFigure));
  find("rows").classList.add(pictures && !data.columns.length ? "as-pictures" : "as-records");
  find("rows").classList.toggle("with-pictures", Boolean(pictures));
  rememberKeys();
  listen();
  setThreshold(data.threshold);
  showLimits();
  const before = decisions.count();
  if (before) say(`${countText(before, "decision", "decisions")} from an earlier visit still here.`);
  else if (!decisions.kept.works) say(REFUSED);
}

begin();

window.review = Object.freeze({ csv: () => decisions.csv(), guard, unguard, parseCsv });

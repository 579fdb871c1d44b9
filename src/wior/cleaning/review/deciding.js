// What a person decides: about one row, about all that are shown, back again, and to and from files.

const currentSlot = () => (rowView.open ? rowView.slot : gallery.slot);
const currentActions = () => (rowView.open ? rowView.actions : gallery.card?.actions);

function decide(word, { advance = false, label = -1 } = {}) {
  const slot = currentSlot();
  if (slot === undefined) return;
  let code = { keep: KEEP, skip: SKIP, ambiguous: AMBIGUOUS, clear: UNDECIDED, fix: FIX + label }[word];
  if (word === "fix" && label < 0) {
    const { select } = currentActions();
    const choice = Number(select.value);
    if (choice < 0) {
      select.focus();
      say("The model suggests the label that this row has: choose another one to fix it.");
      return;
    }
    code = FIX + choice;
  }
  const text = word === "fix" ? `fix to ${decisions.labels[code - FIX]}` : word;
  decisions.set([slot], [code], `${text}, row ${data.ids[slot]}`);
  afterChange(slot, advance && word !== "clear");
  if (word !== "clear") say(`Row ${data.ids[slot]}: ${text}`);
}

// the given label, chosen among the likely ones, is kept
function decideLabel(label, options) {
  const slot = currentSlot();
  if (slot === undefined) return;
  if (label === data.given[slot]) decide("keep", options);
  else decide("fix", { ...options, label });
}

function decideLikely(number) {
  const slot = currentSlot();
  const one = slot !== undefined && data.likely ? data.likely(slot)[number] : undefined;
  if (one) decideLabel(one.value, { advance: true });
}

function afterChange(slot, advance) {
  const place = gallery.current;
  if (filters.state !== "any") refilter();
  else {
    gallery.refresh();
    showProgress();
  }
  // where the decided row is no longer shown, the next one has taken its place
  const gone = gallery.slot !== slot;
  if (advance || gone) move(gone ? place : place + 1);
  else if (rowView.open) showRow();
}

function move(index) {
  if (!gallery.shown.length) {
    rowView.dialog.close();
    return;
  }
  gallery.choose(index, { focus: !rowView.open });
  if (rowView.open) showRow();
}

function undo() {
  const last = decisions.undo();
  if (!last) return;
  refilter({ slot: last.slots[0] });
  gallery.refresh();
  if (gallery.slot === last.slots[0]) gallery.choose(gallery.current);
  if (rowView.open) showRow();
  say(`Undone: ${last.text}`);
}

function nextUndecided() {
  const { shown, current } = gallery;
  for (let step = 1; step <= shown.length; step++) {
    const index = (current + step) % shown.length;
    if (!decisions.codes[shown[index]]) return move(index);
  }
  say("Every row shown is decided.");
}

async function decideAll(word) {
  const undecided = gallery.shown.filter(slot => !decisions.codes[slot]);
  const slots = word === "keep" ? undecided : undecided.filter(slot => data.given[slot] !== data.suggested[slot]);
  const parts = [
    `This is about all ${rowsText(gallery.shown.length)} that pass the threshold and the filters, ` +
      "not only those in the window.",
  ];
  const decided = gallery.shown.length - undecided.length;
  if (decided) parts.push(`Decided already and left so: ${whole(decided)}.`);
  if (slots.length < undecided.length)
    parts.push(`Without another suggested label and left undecided: ${whole(undecided.length - slots.length)}.`);
  const title =
    word === "keep"
      ? `Keep the given label of ${rowsText(slots.length)}?`
      : `Fix ${rowsText(slots.length)} to the suggested label?`;
  if (!slots.length) return say("There is no undecided row to do this with.");
  if (!(await confirmed(title, parts.join(" "), `${word === "keep" ? "Keep" : "Fix"} ${rowsText(slots.length)}`)))
    return;
  const codes = Int32Array.from(slots, slot => (word === "keep" ? KEEP : FIX + data.suggested[slot]));
  decisions.set(slots, codes, `${word} of ${rowsText(slots.length)}`);
  refilter();
  gallery.refresh();
  say(`${word === "keep" ? "Kept" : "Fixed"} ${rowsText(slots.length)}; Undo takes it back.`);
}

function showRow() {
  if (gallery.slot !== undefined) rowView.show(gallery.slot, gallery.current, gallery.shown.length);
}

function writeNote() {
  if (gallery.slot === undefined) return;
  if (!rowView.open) showRow();
  rowView.note.focus();
}

// the box in which a label is searched for or made, for the row that is current now
function searchLabel({ advance = false } = {}) {
  const slot = currentSlot();
  if (slot === undefined) return;
  find("label-title").textContent = `The right label of row ${data.ids[slot]}`;
  find("label-dialog").showModal();
  labelSearch.advance = advance;
  labelSearch.input.focus();
}

const labelSearch = new LabelSearch(find("label-search"), find("label-options"), {
  names: () => decisions.labels,
  choose: name => {
    find("label-dialog").close();
    decideLabel(decisions.labelled(name), { advance: labelSearch.advance });
  },
});

function exportCsv() {
  const stem = data.title.replace(/\.[a-z0-9]{1,5}$/i, "").replace(/[^\p{L}\p{N}._-]+/gu, "-");
  const name = `${stem || "labels"}-decisions.csv`;
  download(name, decisions.csv());
  decisions.exported = true;
  decisions.save();
  const open = [...decisions.notes.keys()].filter(slot => !decisions.exportedCode(slot)).length;
  const rest = open
    ? `; ${countText(open, "note", "notes")} on undecided rows ${open === 1 ? "is" : "are"} not in it`
    : "";
  const { corrections } = decisions;
  const known = corrections ? ` and ${countText(corrections, "correction", "corrections")} of verified rows` : "";
  showExported(
    `Exported ${countText(decisions.count(), "decision", "decisions")}${known} to ${name}${rest}`,
    data.again.replaceAll(/(?<![\p{L}\p{N}._-])decisions\.csv/gu, () => name),
  );
}

function importCsv(text) {
  const found = decisions.read(text);
  refilter();
  gallery.refresh();
  if (rowView.open) showRow();
  return found;
}

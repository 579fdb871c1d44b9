// What a person decides: about one row, about all that are shown, back again, and to and from files.

function decide(word, { advance = false, label = -1 } = {}) {
  const slot = rowView.open ? rowView.slot : gallery.slot;
  if (slot === undefined) return;
  let code = { keep: KEEP, skip: SKIP, clear: UNDECIDED, fix: FIX + label }[word];
  if (word === "fix" && label < 0) {
    const actions = rowView.open ? rowView.actions : gallery.card.actions;
    const choice = Number(actions.select.value);
    if (choice < 0) {
      actions.select.focus();
      say("The model suggests the label that this row has: choose another one to fix it.");
      return;
    }
    code = FIX + choice;
  }
  const text = word === "fix" ? `fix to ${data.classes[code - FIX]}` : word;
  decisions.set([slot], [code], `${text}, row ${data.ids[slot]}`);
  afterChange(slot, advance && word !== "clear");
  if (word !== "clear") say(`Row ${data.ids[slot]}: ${text}`);
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
    `This is about all ${rowsText(gallery.shown.length)} that pass the threshold and the filters, not only those in the window.`,
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

function confirmed(title, text, yes) {
  const dialog = find("confirm");
  find("confirm-title").textContent = title;
  find("confirm-text").textContent = text;
  find("confirm-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise(resolve =>
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }),
  );
}

function showRow() {
  if (gallery.slot !== undefined) rowView.show(gallery.slot, gallery.current, gallery.shown.length);
}

function exportCsv() {
  const link = make("a");
  const url = URL.createObjectURL(new Blob([decisions.csv()], { type: "text/csv;charset=utf-8" }));
  link.href = url;
  link.download = `${data.title.replace(/\.[a-z0-9]{1,5}$/i, "").replace(/[^\p{L}\p{N}._-]+/gu, "-") || "labels"}-decisions.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  decisions.exported = true;
  decisions.save();
  say(`Exported ${whole(decisions.count())} decisions to ${link.download}`);
}

async function importCsv(file) {
  try {
    const { taken, refused } = decisions.read(await file.text());
    refilter();
    gallery.refresh();
    const left = [...refused].map(([reason, number]) => `${whole(number)} ${reason}`);
    say(`Imported ${whole(taken)} decisions${left.length ? `; left out: ${left.join(", ")}` : ""}`);
  } catch (error) {
    say(`${file.name} cannot be imported: ${error.message}`);
  }
}

// The row that is asked about: its picture, its record in full, and, once it is answered, its id and its given label.

function showPicture(slot) {
  const has = Boolean(pictures?.has(slot));
  find("picture").hidden = !has;
  if (!has) return;
  pictures.draw(find("picture-canvas"), slot);
}

// a text that stands alone needs no name in front of it, and is read like a page
function showRecord(slot) {
  const record = data.records[slot];
  const parts = [];
  if (record) parts.push(columnsList(data.columns, record));
  else if (data.columns.length) parts.push(make("p", "remark", "The record of this row is not on this page."));
  if (record && data.cut && isCut(record)) parts.push(make("p", "remark", CUT));
  if (pictures && !pictures.has(slot)) parts.push(make("p", "remark", "The picture of this row is not on this page."));
  if (!parts.length && !pictures) parts.push(make("p", "remark", `Row ${data.ids[slot]}`));
  find("record").replaceChildren(...parts);
  const alone = data.columns.length === 1;
  find("record").classList.toggle("alone", alone);
}

// what was said of a row and, where that is a label, what it was given; others may still be answered, unswayed
function outcome(slot) {
  const code = answers.codes[slot];
  if (code < FIX) return { said: { [AMBIGUOUS]: "cannot tell", [SKIP]: "skipped" }[code] ?? "" };
  const differs = !answers.agrees(slot);
  const given = `given: ${data.classes[data.given[slot]]}, ${differs ? "differs" : "agrees"}`;
  return { said: answers.labels[code - FIX], given, differs };
}

// ids of images hold the given label, so they too wait for the answer
function showOutcome(root, slot) {
  const { said, given, differs } = slot === undefined ? { said: "" } : outcome(slot);
  const parts = said || given ? [makeText("b", "", said)] : [];
  if (given) {
    parts.unshift(makeText("span", "id", data.ids[slot]));
    parts.push(makeText("span", differs ? "told-given differs" : "told-given", given));
  }
  root.hidden = !parts.length;
  root.replaceChildren(...parts);
}

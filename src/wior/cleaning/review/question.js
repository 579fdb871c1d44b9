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

// ids of images hold the given label, so they too wait for the answer
function outcome(slot) {
  const code = answers.codes[slot];
  if (!code) return "";
  const said = { [AMBIGUOUS]: "cannot tell", [SKIP]: "skipped" }[code] ?? answers.labels[code - FIX];
  const given = data.classes[data.given[slot]];
  const compared = code < FIX ? "" : answers.agrees(slot) ? ", agrees" : ", differs";
  return { said, given: `given: ${given}${compared}`, differs: code >= FIX && !answers.agrees(slot) };
}

function showOutcome(root, slot) {
  const told = slot === undefined ? "" : outcome(slot);
  root.hidden = !told;
  if (!told) return root.replaceChildren();
  const given = makeText("span", told.differs ? "told-given differs" : "told-given", told.given);
  root.replaceChildren(makeText("span", "id", data.ids[slot]), makeText("b", "", told.said), given);
}

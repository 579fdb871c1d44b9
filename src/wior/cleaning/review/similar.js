// The rows that are most similar to one, each with its label, and with its whole record when it is opened.

const SIMILAR_TEXT = 160;

function similarRows(page, slot) {
  const { data } = page;
  const found = data.similar ? data.similar(slot).filter(({ value }) => value !== data.places[slot]) : [];
  if (!found.length) return null;
  const section = make("section", "similar", "", { "aria-labelledby": "similar-title" });
  section.append(make("h3", "", "Similar rows", { id: "similar-title" }));
  section.append(...found.map(({ value, number }) => similarRow(page, slot, value, number)));
  return section;
}

function similarRow(page, slot, place, similarity) {
  const { data, pictures } = page;
  const entry = entryOf(data, place);
  const item = make("details", "similar-row");
  const summary = make("summary");
  if (pictures && entry !== undefined && pictures.has(entry)) summary.append(thumbnail(pictures, entry));
  const told = make("span", "similar-told");
  const label = data.all.given[place];
  const given = makeText("b", label === data.given[slot] ? "label" : "label other", data.classes[label]);
  told.append(make("span", "caption", "given"), given, make("span", "number", `${percent(similarity)} similar`));
  if (data.all.verified[place]) told.append(make("span", "number", "verified"));
  if (similarity >= NEAR) told.append(make("span", "near", "near-duplicate"));
  const decided = entry < data.slots ? page.decisions.word(entry) : "";
  if (decided) told.append(make("span", "number", `decided: ${decided}`));
  const record = data.records[entry];
  const text = record ? record.filter(Boolean).join(" · ") : "";
  told.append(makeText("span", "similar-text", cut(text, SIMILAR_TEXT)));
  summary.append(told);
  item.append(summary);
  item.addEventListener("toggle", () => item.open && item.childElementCount === 1 && openSimilar(page, item, place));
  return item;
}

function thumbnail(pictures, entry) {
  const canvas = make("canvas", "thumbnail", "", { "aria-hidden": "true" });
  pictures.draw(canvas, entry);
  return canvas;
}

function openSimilar(page, item, place) {
  const { data } = page;
  const entry = entryOf(data, place);
  const name = entry === undefined ? `place ${whole(place)} in the data, counted from 0` : data.ids[entry];
  const label = data.classes[data.all.suggested[place]];
  const score = decimal(data.all.scores[place]);
  const said = data.all.verified[place] ? `verified ${label}` : `score ${score}, suggested ${label}`;
  item.append(makeText("p", "remark", `${name}, ${said}`));
  const record = data.records[entry];
  if (record) item.append(columnsList(data.columns, record));
  else if (data.columns.length) item.append(make("p", "remark", "The record of this row is not on this page."));
  const index = page.indexOf(entry);
  if (index < 0) return;
  const button = make("button", "", "Go to this row", { type: "button", "data-go": index });
  item.append(button);
}

// One row as a card. Cards are made once and shown for whichever row comes into view.

const SHORT_FIELDS = 16; // the most of them in a card; the view of one row has all
const LONG_FIELDS = 3;
const LONG_TEXT = 36;

// which fields a card shows; long ones take its whole width, and as many lines as nine of ten need, up to four
function chooseFields({ columns, records }) {
  const sample = records.slice(0, 400);
  const all = columns.map((name, column) => {
    const lengths = sample.map(record => record[column].length).sort((one, other) => one - other);
    const typical = lengths[Math.floor(0.9 * lengths.length)] ?? 0;
    return { name, column, typical, long: typical > LONG_TEXT };
  });
  const long = all.filter(field => field.long).slice(0, LONG_FIELDS);
  return [...long, ...all.filter(field => !field.long).slice(0, SHORT_FIELDS)];
}

// wide enough for nine of ten texts, so that tables of numbers become denser than tables of words
function fieldWidth(fields) {
  const needed = fields
    .filter(field => !field.long)
    .map(({ typical, name }) => Math.max(6.8 * typical, 6 * name.length));
  return Math.min(190, Math.max(56, ...needed));
}

// keep, fix, skip, and the label that a fix gives
class Actions {
  constructor({ data, decisions }) {
    this.data = data;
    this.decisions = decisions;
    this.buttons = {};
    this.root = make("div", "actions", "", { role: "group", "aria-label": "Decision" });
    for (const [word, text] of [
      ["keep", "Keep"],
      ["fix", "Fix"],
      ["skip", "Skip"],
    ]) {
      const button = make("button", `decide ${word}`, "", {
        type: "button",
        "data-decide": word,
        "aria-keyshortcuts": word[0],
      });
      button.append(make("span", "mark", { keep: "✓", fix: "→", skip: "–" }[word], { "aria-hidden": "true" }), text);
      this.buttons[word] = button;
      this.root.append(button);
    }
    this.select = make("select", "label-choice", "", { "aria-keyshortcuts": "l" });
    this.select.addEventListener("pointerdown", () => this.fill());
    this.select.addEventListener("focus", () => this.fill());
    const box = make("label", "label-box");
    box.append(make("span", "", "fix to"), this.select);
    this.root.append(box);
  }

  show(slot) {
    const { data, decisions } = this;
    this.slot = slot;
    const id = data.ids[slot];
    const given = data.classes[data.given[slot]];
    const word = decisions.word(slot);
    for (const [name, button] of Object.entries(this.buttons))
      button.setAttribute("aria-pressed", String(name === word));
    const chosen = word === "fix" ? decisions.label(slot) : this.suggestion(slot);
    const to = chosen < 0 ? "another label" : data.classes[chosen];
    this.buttons.keep.setAttribute("aria-label", `Keep ${given}, row ${id}`);
    this.buttons.fix.setAttribute("aria-label", `Fix to ${to}, row ${id}`);
    this.buttons.skip.setAttribute("aria-label", `Skip row ${id}`);
    this.select.setAttribute("aria-label", `fix to: label for row ${id}`);
    this.filled = -1;
    this.select.replaceChildren(this.option(chosen));
    if (document.activeElement === this.select) this.fill();
  }

  // -1 where the model suggests the label that the row has
  suggestion(slot) {
    return this.data.suggested[slot] === this.data.given[slot] ? -1 : this.data.suggested[slot];
  }

  option(label) {
    return new Option(label < 0 ? "choose a label" : this.data.classes[label], label);
  }

  // all labels become options when somebody is about to choose: a thousand of them in every card would be slow
  fill() {
    if (this.filled === this.slot) return;
    this.filled = this.slot;
    const value = Number(this.select.value);
    const given = this.data.given[this.slot];
    this.select.replaceChildren();
    if (value < 0) this.select.append(this.option(-1));
    this.data.classes.forEach((_, label) => label !== given && this.select.append(this.option(label)));
    this.select.value = String(value);
  }
}

// the given and the suggested label, and how much the model thinks of each
function makeLabels() {
  const root = make("div", "labels");
  const parts = {
    root,
    given: makeText("b", "label"),
    suggested: makeText("b", "label"),
    score: make("span"),
    sure: make("span"),
  };
  const given = make("div", "given");
  given.append(make("span", "caption", "given"), parts.given);
  const suggested = make("div", "suggested");
  suggested.append(make("span", "caption", "suggested"), parts.suggested);
  const numbers = make("div", "numbers");
  numbers.append(parts.score, parts.sure);
  root.append(given, make("span", "arrow", "→", { "aria-hidden": "true" }), suggested, numbers);
  return parts;
}

function showLabels(parts, data, slot) {
  const given = data.classes[data.given[slot]];
  const suggested = data.classes[data.suggested[slot]];
  parts.given.textContent = given;
  parts.given.title = given;
  parts.suggested.textContent = suggested;
  parts.suggested.title = suggested;
  parts.score.textContent = `score ${decimal(data.scores[slot])}`;
  parts.sure.textContent = `${percent(data.confidence[slot])} sure`;
  parts.root.classList.toggle("same", given === suggested);
}

const describe = (data, slot) =>
  `row ${data.ids[slot]}, given ${data.classes[data.given[slot]]}, suggested ${data.classes[data.suggested[slot]]}`;

class Card {
  constructor(page) {
    this.page = page;
    this.index = -1;
    this.root = make("article", "card", "", { tabindex: "-1" });
    this.root.card = this;
    this.id = makeText("span", "id");
    this.state = make("span", "state");
    this.labels = makeLabels();
    this.actions = new Actions(page);
    const top = make("div", "top");
    top.append(this.id, this.state);
    const told = make("div", "told");
    told.append(top, this.labels.root);
    if (page.pictures) {
      this.canvas = make("canvas", "", "", { role: "img" });
      const picture = make("div", "picture");
      picture.append(this.canvas, make("span", "missing", "no picture on this page"));
      this.root.append(picture);
    }
    this.root.append(told);
    if (page.data.columns.length) this.root.append(this.makeFields());
    this.root.append(this.actions.root);
  }

  makeFields() {
    const { data, fields } = this.page;
    const box = make("div", "record");
    const list = make("dl", "fields");
    list.style.setProperty("--field", `${fieldWidth(fields)}px`);
    this.fields = fields.map(field => {
      const item = make("div", field.long ? "field long" : "field");
      const name = makeText("dt", "", field.name);
      const value = makeText("dd", "", "");
      name.title = field.name;
      if (field.long) value.style.setProperty("--lines", this.page.linesOf(field));
      item.append(name, value);
      list.append(item);
      return value;
    });
    box.append(list);
    const more = data.columns.length - fields.length;
    if (more) box.append(make("button", "more", `${whole(more)} more fields`, { type: "button", "data-open": "" }));
    return box;
  }

  show(index, total, slot) {
    const { data, pictures, fields } = this.page;
    this.index = index;
    this.slot = slot;
    this.root.setAttribute("aria-posinset", index + 1);
    this.root.setAttribute("aria-setsize", total);
    this.id.textContent = data.ids[slot];
    this.id.title = data.ids[slot];
    showLabels(this.labels, data, slot);
    if (pictures) {
      const has = pictures.has(slot);
      this.root.classList.toggle("without-picture", !has);
      if (this.canvas.showing !== slot) pictures.draw(this.canvas, slot);
      this.canvas.setAttribute("aria-label", describe(data, slot));
    }
    const record = data.records[slot];
    fields.forEach((field, i) => {
      const text = record ? record[field.column] : "";
      this.fields[i].textContent = text;
      this.fields[i].title = text;
    });
    this.refresh();
  }

  refresh() {
    const { data, decisions } = this.page;
    const word = decisions.word(this.slot);
    const label = decisions.label(this.slot);
    this.root.dataset.decision = word;
    this.state.textContent = { "": "", keep: "✓ keep", skip: "– skip", fix: `→ ${data.classes[label]}` }[word];
    this.root.setAttribute("aria-label", `${describe(data, this.slot)}, ${word ? `decided: ${word}` : "undecided"}`);
    this.actions.show(this.slot);
  }
}

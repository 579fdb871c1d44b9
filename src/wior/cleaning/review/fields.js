// The fields of a record that a card shows.

const SHORT_FIELDS = 16; // the most of them in a card; the view of one row has all
const LONG_FIELDS = 3;
const LONG_TEXT = 36;
const CARD_TEXT = 300; // the most letters of a text in a card

// long fields take the whole width of a card, and as many lines as nine of ten texts need; the longest are always there
function chooseFields({ columns, records }) {
  const sample = records.slice(0, 400);
  const all = columns.map((name, column) => {
    const lengths = sample.map(record => record[column].length).sort((one, other) => one - other);
    const typical = lengths[Math.floor(0.9 * lengths.length)] ?? 0;
    const longest = lengths.at(-1) ?? 0;
    const sum = lengths.reduce((total, length) => total + length, 0);
    return { name, column, typical, longest, sum, long: typical > LONG_TEXT || longest > CARD_TEXT };
  });
  const first = [...all].sort((one, other) => other.longest - one.longest).slice(0, 1);
  const most = [...all].sort((one, other) => other.sum - one.sum);
  const long = [...new Set([...first, ...most])].filter(field => field.long).slice(0, LONG_FIELDS);
  const inOrder = long.sort((one, other) => one.column - other.column);
  return [...inOrder, ...all.filter(field => !field.long).slice(0, SHORT_FIELDS)];
}

// wide enough for nine of ten texts, so that tables of numbers become denser than tables of words
function fieldWidth(fields) {
  const needed = fields
    .filter(field => !field.long)
    .map(({ typical, name }) => Math.max(8 * typical, 6 * name.length));
  return Math.min(190, Math.max(56, ...needed));
}

class Fields {
  constructor({ data, fields, linesOf }) {
    this.data = data;
    this.fields = fields;
    this.root = make("div", "record");
    const list = make("dl", "fields");
    list.style.setProperty("--field", `${fieldWidth(fields)}px`);
    this.values = fields.map(field => {
      const item = make("div", field.long ? "field long" : "field");
      const name = makeText("dt", "", field.name);
      const value = makeText("dd", "", "");
      name.title = field.name;
      if (field.long) value.style.setProperty("--lines", linesOf(field));
      item.append(name, value);
      list.append(item);
      return value;
    });
    this.root.append(list);
    const shown = new Set(fields.map(field => field.column));
    this.hidden = data.columns.map((_, column) => column).filter(column => !shown.has(column));
    if (!this.hidden.length) return;
    this.more = make("button", "more", "", { type: "button", "data-open": "" });
    this.more.title = this.hidden.map(column => data.columns[column]).join(", ");
    this.root.append(this.more);
  }

  show(record, words) {
    this.fields.forEach((field, i) => {
      const text = record ? record[field.column] : "";
      showText(this.values[i], excerpt(text, CARD_TEXT, words), words);
      this.values[i].title = cut(text, 1000);
    });
    if (!this.more) return;
    const match = record && words ? this.hidden.find(column => matchIn(record[column], words) >= 0) : undefined;
    this.more.textContent =
      countText(this.hidden.length, "more field", "more fields") +
      (match === undefined ? "" : ` · found in ${this.data.columns[match]}`);
  }
}

// Numbers as pictures: the histogram of scores, bars for each class, the matrix of labels, learning curves.

const SVG = "http://www.w3.org/2000/svg";
const BINS = 50;
const SIDE = 12; // the most classes of a matrix with all of them
const PART = 10; // rows and columns of a part of one

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

class Histogram {
  constructor(data, choose) {
    const counts = new Uint32Array(BINS);
    const { scores, verified } = data.all;
    scores.forEach((score, row) => verified[row] || counts[Math.min(BINS - 1, Math.floor(score * BINS))]++);
    const highest = Math.max(1, ...counts);
    let bars = "";
    counts.forEach((number, bin) => {
      const height = number ? 3 + (97 * Math.log1p(number)) / Math.log1p(highest) : 0;
      if (height) bars += `M${bin + 0.08} 100V${(100 - height).toFixed(1)}h.84V100z`;
    });
    this.below = draw("rect", { x: 0, y: 0, width: 0, height: 100 });
    this.line = draw("line", { y1: 0, y2: 100, class: "threshold-line" });
    this.svg = draw(
      "svg",
      { viewBox: `0 0 ${BINS} 100`, preserveAspectRatio: "none", role: "img", class: "histogram" },
      draw("clipPath", { id: "below" }, this.below),
      draw("path", { d: bars, class: "bars" }),
      draw("path", { d: bars, class: "bars flagged", "clip-path": "url(#below)" }),
      this.line,
    );
    this.svg.setAttribute(
      "aria-label",
      `Histogram of the scores of ${rowsText(data.toJudge)}, from 0 to 1 in ${BINS} bars`,
    );
    const follow = event => {
      const box = this.svg.getBoundingClientRect();
      choose(Math.round(1000 * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width))) / 1000);
    };
    this.svg.addEventListener("pointerdown", event => {
      this.svg.setPointerCapture(event.pointerId);
      follow(event);
    });
    this.svg.addEventListener("pointermove", event => this.svg.hasPointerCapture(event.pointerId) && follow(event));
  }

  show(threshold) {
    this.below.setAttribute("width", threshold * BINS);
    for (const end of ["x1", "x2"]) this.line.setAttribute(end, threshold * BINS);
  }
}

// the places of the largest values, largest first
function largest(values, most) {
  const places = Array.from(values, (_, place) => place);
  return places.sort((one, other) => values[other] - values[one] || one - other).slice(0, most);
}

class ClassBars {
  constructor(data, choose) {
    this.data = data;
    this.choose = choose;
    this.total = new Uint32Array(data.classes.length);
    data.all.given.forEach((label, row) => data.all.verified[row] || this.total[label]++);
    this.list = make("ul", "class-bars");
    const longest = data.classes.reduce((most, name) => Math.max(most, name.length), 0);
    this.list.style.setProperty("--name", `${Math.min(24, longest + 1)}ch`);
    this.rest = make("p", "remark");
    this.lines = Array.from({ length: Math.min(60, data.classes.length) }, () => this.line());
  }

  line() {
    const button = make("button", "class-bar", "", { type: "button" });
    const parts = { button, name: makeText("span", "name"), bar: make("span", "bar"), number: make("span", "number") };
    button.append(parts.name, parts.bar, parts.number);
    button.addEventListener("click", () => this.choose(parts.label));
    const item = make("li");
    item.append(button);
    this.list.append(item);
    return parts;
  }

  show({ byGiven }, chosen) {
    const { classes } = this.data;
    const labels = classes.length <= SIDE ? classes.map((_, label) => label) : largest(byGiven, this.lines.length);
    const most = labels.reduce((most, label) => Math.max(most, byGiven[label]), 1);
    this.lines.forEach((parts, i) => {
      const label = labels[i];
      const share = this.total[label] ? byGiven[label] / this.total[label] : 0;
      parts.label = label;
      parts.name.textContent = classes[label];
      parts.bar.style.setProperty("--length", byGiven[label] / most);
      parts.number.textContent = `${whole(byGiven[label])} · ${percent(share)}`;
      parts.button.title = `${classes[label]}: ${whole(byGiven[label])} of ${rowsText(this.total[label])} flagged`;
      parts.button.setAttribute("aria-label", `given ${parts.button.title}`);
      parts.button.setAttribute("aria-pressed", String(label === chosen));
    });
    const more = classes.length - this.lines.length;
    this.rest.textContent = more > 0 ? `and ${whole(more)} classes with no more flagged rows than these` : "";
  }
}

class Matrix {
  constructor(data, choose) {
    this.data = data;
    this.choose = choose;
    this.side = data.classes.length <= SIDE ? data.classes.length : PART;
    this.table = make("table", "matrix", "", {
      role: "grid",
      "aria-label": "Flagged rows by given and suggested label",
    });
    this.pairs = make("ul", "pairs");
    this.remark = make("p", "remark");
    this.build();
  }

  build() {
    const head = make("tr");
    const corner = make("th", "corner", "", { scope: "col" });
    const longest = this.data.classes.reduce((most, name) => Math.max(most, name.length), 0);
    this.table.style.setProperty("--head", `${Math.max(78, Math.min(130, 6 * longest + 8))}px`);
    corner.append(make("span", "", "given ↓ suggested →"));
    head.append(corner);
    this.columns = [];
    this.heads = [];
    this.cells = [];
    for (let column = 0; column < this.side; column++) {
      const name = makeText("span", "name", "");
      const cell = make("th", "", "", { scope: "col" });
      cell.append(name);
      head.append(cell);
      this.columns.push(name);
    }
    this.table.append(make("thead"), make("tbody"));
    this.table.tHead.append(head);
    for (let row = 0; row < this.side; row++) {
      const line = make("tr");
      const name = makeText("th", "name", "");
      name.scope = "row";
      line.append(name);
      this.heads.push(name);
      this.cells.push(
        this.columns.map((_, column) => {
          const button = make("button", "cell", "", { type: "button", tabindex: row || column ? -1 : 0 });
          button.addEventListener("click", () => this.choose(...button.pair));
          button.addEventListener("keydown", event => this.move(event, row, column));
          const cell = make("td", "", "", { role: "gridcell" });
          cell.append(button);
          line.append(cell);
          return button;
        }),
      );
      this.table.tBodies[0].append(line);
    }
  }

  move(event, row, column) {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[
      event.key
    ] ?? [0, 0];
    if (!down && !right) return;
    event.preventDefault();
    const next = this.cells[row + down]?.[column + right];
    if (!next) return;
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  show(counts, chosenGiven, chosenSuggested) {
    const { classes } = this.data;
    const { ofPair } = counts;
    let rows = classes.map((_, label) => label);
    let columns = rows;
    if (classes.length > this.side) {
      const busiest = (counts.busiest ??= this.busiest(counts.pairs));
      rows = busiest.rows;
      columns = busiest.columns;
      this.showPairs(busiest.pairs, chosenGiven, chosenSuggested);
      this.remark.textContent =
        `The labels of the most frequent pairs, of ${whole(classes.length)} labels. ` +
        "The lists above the rows reach all of them.";
    }
    let most = 1;
    for (const row of rows)
      for (const column of columns) if (row !== column) most = Math.max(most, ofPair(row, column));
    columns.forEach((label, i) => {
      this.columns[i].textContent = classes[label];
      this.columns[i].title = classes[label];
    });
    rows.forEach((row, i) => {
      this.heads[i].textContent = classes[row];
      this.heads[i].title = classes[row];
      columns.forEach((column, j) => this.showCell(this.cells[i][j], row, column, ofPair(row, column), most));
    });
    this.cells.flat().forEach(button => {
      const chosen = button.pair[0] === chosenGiven && button.pair[1] === chosenSuggested;
      button.setAttribute("aria-pressed", String(chosen));
    });
  }

  showCell(button, row, column, number, most) {
    const { classes } = this.data;
    button.pair = [row, column];
    button.textContent = number ? brief(number) : "";
    button.classList.toggle("same", row === column);
    button.style.setProperty("--warm", number ? 0.12 + 0.88 * Math.min(1, Math.sqrt(number / most)) : 0);
    button.title = `given ${classes[row]}, suggested ${classes[column]}: ${rowsText(number)}`;
    button.setAttribute("aria-label", button.title);
  }

  // the labels of the most frequent pairs, filled up with others where these are few
  busiest(pairs) {
    const side = this.data.classes.length;
    const found = [];
    pairs.forEach((number, pair) => {
      const row = Math.floor(pair / side);
      const column = pair % side;
      if (number && row !== column) found.push([row, column, number]);
    });
    found.sort((one, other) => other[2] - one[2]);
    const rest = Array.from({ length: this.side }, (_, label) => label);
    const first = labels => [...new Set([...labels, ...rest])].slice(0, this.side);
    return {
      rows: first(found.map(pair => pair[0])),
      columns: first(found.map(pair => pair[1])),
      pairs: found.slice(0, 30),
    };
  }

  showPairs(pairs, chosenGiven, chosenSuggested) {
    const { classes } = this.data;
    const focused = [...this.pairs.children].findIndex(item => item.contains(document.activeElement));
    this.pairs.replaceChildren(
      ...pairs.map(([row, column, number]) => {
        const button = make("button", "pair", "", { type: "button" });
        const chosen = row === chosenGiven && column === chosenSuggested;
        button.setAttribute("aria-pressed", String(chosen));
        button.append(makeText("span", "name", classes[row]), make("span", "arrow", "→"));
        button.append(makeText("span", "name", classes[column]), make("span", "number", whole(number)));
        button.setAttribute("aria-label", `given ${classes[row]}, suggested ${classes[column]}: ${rowsText(number)}`);
        button.addEventListener("click", () => this.choose(row, column));
        const item = make("li");
        item.append(button);
        return item;
      }),
    );
    this.pairs.children[focused]?.firstChild.focus({ preventScroll: true });
  }
}

const significant = value => (Math.abs(value) >= 1e5 ? value.toExponential(2) : String(Number(value.toPrecision(3))));

function curveFigure({ name, steps, values }) {
  const figure = make("figure", "curve");
  const known = values.filter(value => value !== null);
  const caption = make("figcaption");
  caption.append(makeText("span", "name", name));
  figure.append(caption);
  if (!known.length) {
    figure.append(make("p", "remark", "no values"));
    return figure;
  }
  const low = known.reduce((one, other) => Math.min(one, other));
  const high = known.reduce((one, other) => Math.max(one, other));
  const last = known.at(-1);
  caption.append(make("span", "number", significant(last)));
  const width = Math.max(1, steps.at(-1) - steps[0]);
  const x = step => (1000 * (step - steps[0])) / width;
  const y = value => (high > low ? 96 - (92 * (value - low)) / (high - low) : 50);
  let path = "";
  let open = false;
  values.forEach((value, i) => {
    if (value !== null) path += `${open ? "L" : "M"}${x(steps[i]).toFixed(1)} ${y(value).toFixed(1)}`;
    open = value !== null;
  });
  if (known.length === 1) path += "h1000";
  const said = [
    `${name}: ${significant(known[0])} at first`,
    `${significant(last)} at step ${whole(steps.at(-1))}`,
    `lowest ${significant(low)}`,
    `highest ${significant(high)}`,
  ].join(", ");
  figure.append(
    draw(
      "svg",
      { viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": said },
      draw("path", { d: path }),
    ),
  );
  const axis = make("div", "axis");
  axis.append(
    make("span", "", `step ${whole(steps[0])}`),
    make("span", "", `${significant(low)} to ${significant(high)}`),
    make("span", "", whole(steps.at(-1))),
  );
  figure.append(axis);
  return figure;
}

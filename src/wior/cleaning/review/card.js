// One row as a card. Cards are made once and shown for whichever row comes into view.

const LIKELY_IN_CARD = 3;

class Card {
  constructor(page) {
    this.page = page;
    this.index = -1;
    this.root = make("article", "card", "", { tabindex: "-1" });
    this.root.card = this;
    this.id = makeText("span", "id");
    this.near = make("span", "near");
    this.noted = make("span", "noted", "", { title: "has a note" });
    this.state = makeText("span", "state", "");
    this.labels = makeLabels();
    this.actions = new Actions(page);
    this.likely = new Likely(page, LIKELY_IN_CARD);
    const top = make("div", "top");
    top.append(this.id, this.near, this.noted, this.state);
    const told = make("div", "told");
    told.append(top, this.labels.root);
    if (page.pictures) {
      this.canvas = make("canvas", "", "", { role: "img" });
      const picture = make("div", "picture");
      picture.append(this.canvas, make("span", "missing", "no picture on this page"));
      this.root.append(picture);
    }
    this.root.append(told);
    if (page.data.columns.length) {
      this.fields = new Fields(page);
      this.root.append(this.fields.root);
    }
    const answer = make("div", "answer");
    if (page.data.likely) answer.append(this.likely.root);
    answer.append(this.actions.root);
    this.root.append(answer);
  }

  show(index, total, slot) {
    const { data, pictures } = this.page;
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
    this.showNear();
    this.words = this.page.words();
    this.fields?.show(data.records[slot], this.words);
    this.refresh();
  }

  // other words to mark than when the row was shown
  get stale() {
    return this.words !== this.page.words();
  }

  showNear() {
    const { data } = this.page;
    const near = nearOf(data, this.slot);
    const others = near.filter(({ value }) => data.all.given[value] !== data.given[this.slot]);
    this.near.textContent = near.length ? `≈ ${near.length}` : "";
    this.near.classList.toggle("differs", others.length > 0);
    const labels = [...new Set(others.map(({ value }) => data.classes[data.all.given[value]]))];
    this.near.title = near.length
      ? countText(near.length, "near-duplicate", "near-duplicates") +
        (labels.length ? `, given another label: ${labels.join(", ")}` : ", given the same label")
      : "";
  }

  refresh() {
    const { data, decisions } = this.page;
    const word = decisions.word(this.slot);
    this.root.dataset.decision = word;
    const label = decisions.labels[decisions.label(this.slot)];
    this.state.textContent = {
      "": "",
      keep: "✓ keep",
      skip: "– skip",
      ambiguous: "? ambiguous",
      fix: `→ ${label}`,
    }[word];
    this.state.title = word === "fix" ? `fix to ${label}` : "";
    this.noted.textContent = decisions.notes.has(this.slot) ? "✎" : "";
    const said = [describe(data, this.slot), word ? `decided: ${word}` : isVerified(data, this.slot) ? "" : "undecided"].filter(Boolean);
    if (this.near.title) said.push(this.near.title);
    if (decisions.notes.has(this.slot)) said.push("with a note");
    this.root.setAttribute("aria-label", said.join(", "));
    this.actions.show(this.slot);
    this.likely.show(this.slot);
  }
}

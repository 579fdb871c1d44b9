// All there is about one row, in a dialog: every field, and the picture larger.

class RowView {
  constructor(page) {
    this.page = page;
    this.dialog = find("row-view");
    this.title = find("row-title");
    this.body = find("row-body");
    this.labels = makeLabels();
    this.actions = new Actions(page);
    this.actions.root.classList.add("wide");
    find("row-actions").append(this.actions.root);
    if (page.pictures) this.canvas = make("canvas", "", "", { role: "img" });
  }

  get open() {
    return this.dialog.open;
  }

  show(slot, place, total) {
    const { data, pictures, decisions } = this.page;
    this.slot = slot;
    this.title.textContent = data.ids[slot];
    const word = decisions.word(slot);
    find("row-place").textContent = `${whole(place + 1)} of ${whole(total)}${word ? ` · decided: ${word}` : ""}`;
    showLabels(this.labels, data, slot);
    const facts = make("p", "remark", `place ${whole(data.places[slot])} in the data, counted from 0`);
    const parts = [this.labels.root, facts];
    if (pictures?.has(slot)) {
      pictures.draw(this.canvas, slot);
      this.canvas.setAttribute("aria-label", describe(data, slot));
      const picture = make("div", "picture");
      picture.append(this.canvas);
      parts.unshift(picture);
    }
    const record = data.records[slot];
    if (record) {
      const list = make("dl", "all-fields");
      data.columns.forEach((name, column) => list.append(makeText("dt", "", name), makeText("dd", "", record[column])));
      parts.push(list);
    } else if (data.columns.length) {
      parts.push(make("p", "remark", "The record of this row is not on this page."));
    }
    this.body.replaceChildren(...parts);
    this.actions.show(slot);
    if (!this.open) {
      this.body.scrollTop = 0;
      this.dialog.showModal();
      this.dialog.focus();
    }
  }
}

// Pictures are cut from sheets, which are decoded when one of their pictures comes into view.

class Pictures {
  constructor(layout) {
    this.layout = layout;
    this.sheets = new Map();
    this.most = 80;
  }

  has(slot) {
    return slot < this.layout.count;
  }

  async draw(canvas, slot) {
    const { width, height, cell, across, onSheet } = this.layout;
    canvas.showing = slot;
    canvas.width = width;
    canvas.height = height;
    if (!this.has(slot)) return;
    const sheet = await this.sheet(Math.floor(slot / onSheet));
    if (canvas.showing !== slot) return;
    const place = slot % onSheet;
    const x = (place % across) * cell[1];
    const y = Math.floor(place / across) * cell[0];
    canvas.getContext("2d").drawImage(sheet, x, y, width, height, 0, 0, width, height);
  }

  sheet(number) {
    let sheet = this.sheets.get(number);
    this.sheets.delete(number);
    sheet ??= decoded(find(`sheet-${number}`).textContent);
    this.sheets.set(number, sheet);
    if (this.sheets.size > this.most) this.sheets.delete(this.sheets.keys().next().value);
    return sheet;
  }
}

async function decoded(source) {
  const image = new Image();
  image.src = source;
  await image.decode();
  return image;
}

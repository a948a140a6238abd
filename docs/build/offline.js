/* The search of pages that are opened as files. There a browser refuses a worker from a file, and takes one from text
   in memory: SOURCES has the text of each worker, by the end of its address. The site's build puts it in. */
if (location.protocol === "file:") {
  const FromFile = Worker
  window.Worker = class extends FromFile {
    constructor(address, options) {
      const name = Object.keys(SOURCES).find(end => String(address).endsWith(end))
      super(name ? URL.createObjectURL(new Blob([SOURCES[name]], {type: "text/javascript"})) : address, options)
    }
  }
}

// Bundles the dashboard: node build.mjs OUT writes index.html and assets/ with a hash in each name.
import { build } from "esbuild";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";

const folder = path.dirname(fileURLToPath(import.meta.url));
const out = path.resolve(process.argv[2] ?? "dist");

await rm(out, { recursive: true, force: true });
const result = await build({
  absWorkingDir: folder,
  entryPoints: ["src/main.tsx"],
  outdir: path.join(out, "assets"),
  // Names that the page refers to, relative to /ui/assets/.
  entryNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  publicPath: "/ui/assets",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".woff2": "file" },
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
});
if (result.warnings.length > 0) process.exit(1);

const names = Object.keys(result.metafile.outputs).map((file) => path.basename(file));
const named = (end) => names.find((name) => name.startsWith("main-") && name.endsWith(end));
// What the licences of the bundled packages ask for; /ui/licenses serves it.
const packages = ["@fontsource-variable/inter", "@fontsource-variable/jetbrains-mono", "@preact/signals",
  "@preact/signals-core", "preact", "uplot"];
const texts = await Promise.all(packages.map(async (name) =>
  `${name}\n\n${await readFile(path.join(folder, "node_modules", name, "LICENSE"), "utf8")}`));
await writeFile(path.join(out, "licenses.txt"), texts.join(`\n${"-".repeat(80)}\n\n`));

const page = await readFile(path.join(folder, "index.html"), "utf8");
await writeFile(path.join(out, "index.html"),
  page.replace("main.js", named(".js")).replace("main.css", named(".css")));

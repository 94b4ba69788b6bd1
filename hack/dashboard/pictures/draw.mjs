// Draws each row of the dashboard as a picture: `hack/dashboard-pictures.sh`.
//
//   node draw.mjs DATA.json FOLDER
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { build } from 'esbuild';

const WIDTH = 1440;
const UNIT = 38;
const STYLE = `html { font-size: 14px } * { box-sizing: border-box }
    body { margin: 0; background: #111217; color: #ccccdc; font-family: sans-serif }
    button { color: inherit; background: none; border: 0; font: inherit; padding: 0 }`;

const [, , dataFile, folder] = process.argv;
const data = JSON.parse(readFileSync(dataFile, 'utf8'));
const work = mkdtempSync(join(tmpdir(), 'dashboard-'));

// Grafana's ES modules expect another interpretation of default imports than esbuild's; its CommonJS modules do not. The
// large code editor is excluded, because no panel uses it.
const grafana = (name) => resolve(import.meta.dirname, `node_modules/@grafana/${name}/dist/cjs/index.cjs`);
const withoutEditor = {
    name: 'without-editor',
    setup({ onResolve, onLoad }) {
        onResolve({ filter: /^(monaco-editor|react-monaco-editor|@monaco-editor)/ }, () => ({ path: 'none', namespace: 'none' }));
        onLoad({ filter: /.*/, namespace: 'none' }, () => ({ contents: 'module.exports = {};' }));
    },
};

try {
    await build({
        entryPoints: [join(import.meta.dirname, 'page.jsx')],
        outfile: join(work, 'page.js'),
        alias: { '@grafana/ui': grafana('ui'), '@grafana/data': grafana('data') },
        bundle: true,
        define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
        format: 'iife',
        jsx: 'automatic',
        loader: { '.svg': 'dataurl', '.ttf': 'dataurl', '.woff2': 'dataurl' },
        logLevel: 'error',
        plugins: [withoutEditor],
    });
    const json = JSON.stringify(data).replace(/</g, '\\u003c');
    writeFileSync(
        join(work, 'page.html'),
        `<!doctype html><meta charset=utf-8><link rel=stylesheet href=page.css><style>${STYLE}</style>
        <div id=root></div><script>window.DATA = ${json}</script><script src=page.js></script>`,
    );
    const { panels } = data.dashboard;
    const rows = panels.filter((panel) => panel.type === 'row');
    let failed = false;
    rows.forEach((row, index) => {
        const end = rows[index + 1]?.gridPos.y ?? Math.max(...panels.map(({ gridPos: { y, h } }) => y + h));
        const file = resolve(folder, `${row.title.toLowerCase().replaceAll(' ', '-')}.png`);
        const height = (end - row.gridPos.y - 1) * UNIT + 8;
        const output = draw(`file://${work}/page.html#${encodeURIComponent(row.title)}`, file, height);
        const drawn = panels.filter(({ gridPos: { y }, type }) => type !== 'row' && y > row.gridPos.y && y < end).length;
        const problems = output.split('\n').filter((line) => line.includes('panel failed') || line.includes('Uncaught'));
        if (problems.length > 0 || !output.includes(`drawn ${drawn} panels`)) {
            failed = true;
            console.error(`error: row ${row.title}: ${problems.join('\n') || 'not all panels were drawn'}`);
        } else {
            console.log(`${file}: ${drawn} panels`);
        }
    });
    process.exitCode = failed ? 1 : 0;
} finally {
    rmSync(work, { recursive: true });
}

// The messages of the browser, among them those of the page.
function draw(url, file, height) {
    const flags = ['--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--enable-logging=stderr'];
    const time = ['--virtual-time-budget=8000', `--user-data-dir=${join(work, 'profile')}`];
    const { stderr, error } = spawnSync('chromium', [...flags, ...time, `--window-size=${WIDTH},${height}`, `--screenshot=${file}`, url], {
        encoding: 'utf8',
        timeout: 120_000,
    });
    if (error) throw error;
    return stderr;
}

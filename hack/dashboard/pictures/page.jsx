// Draws one row of the dashboard from recorded data with Grafana's own components: @grafana/ui draws the panels,
// @grafana/data formats values, applies overrides and runs transformations.
import React from 'react';
import 'uplot/dist/uPlot.min.css';
import { createRoot } from 'react-dom/client';
import {
    FieldConfigOptionsRegistry,
    FieldType,
    applyFieldOverrides,
    createTheme,
    dateTime,
    formattedValueToString,
    identityOverrideProcessor,
    standardTransformers,
    standardTransformersRegistry,
    toDataFrame,
    transformDataFrame,
} from '@grafana/data';
import { BigValue, PanelChrome, Table, ThemeContext, TimeSeries } from '@grafana/ui';

const { dashboard, from, until, step, panels } = window.DATA;
const wanted = decodeURIComponent(location.hash.slice(1));
const theme = createTheme({ colors: { mode: 'dark' } });
const COLUMN = 60;
const UNIT = 38;
const RANGE = { from: dateTime(from * 1000), to: dateTime(until * 1000), raw: { from: '', to: '' } };

standardTransformersRegistry.setInit(() =>
    [standardTransformers.mergeTransformer, standardTransformers.filterFieldsByNameTransformer, standardTransformers.organizeFieldsTransformer].map(
        (transformation) => ({ id: transformation.id, name: transformation.name, transformation, editor: () => null }),
    ),
);

const CUSTOM = {
    axisPlacement: 'auto',
    barAlignment: 0,
    barWidthFactor: 0.6,
    drawStyle: 'line',
    fillOpacity: 10,
    hideFrom: {},
    lineInterpolation: 'linear',
    lineWidth: 1,
    pointSize: 5,
    scaleDistribution: { type: 'linear' },
    showPoints: 'auto',
    stacking: { mode: 'none', group: 'A' },
};
const CUSTOM_PROPERTIES = [...Object.keys(CUSTOM), 'axisSoftMax', 'cellOptions', 'lineStyle', 'thresholdsStyle', 'width'];

// Grafana registers its options when it starts; these are the ones that the dashboard uses.
const property = (path, isCustom) => ({
    id: isCustom ? `custom.${path}` : path,
    path,
    isCustom,
    name: path,
    editor: () => null,
    override: () => null,
    process: identityOverrideProcessor,
    shouldApply: () => true,
});
const registry = new FieldConfigOptionsRegistry(() => [
    ...['unit', 'decimals', 'mappings', 'min', 'max', 'color', 'displayName', 'thresholds'].map((path) => property(path, false)),
    ...CUSTOM_PROPERTIES.map((path) => property(path, true)),
]);

const legendOf = (template, labels) => (template ?? '').replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? '');
// As Grafana does: a value that is not finite is a gap.
const number = (text) => (Number.isFinite(Number(text)) ? Number(text) : null);

// A series over time: a point for each step, null where there is none, as Grafana's data source fills gaps.
function overTime(query, target, series) {
    const times = [];
    for (let at = from; at <= until + 0.001; at += step) times.push(at);
    const values = new Map(series.values.map(([at, value]) => [Math.round((at - from) / step), number(value)]));
    const { __name__, ...labels } = series.metric;
    return toDataFrame({
        refId: query.refId,
        fields: [
            { name: 'Time', type: FieldType.time, values: times.map((at) => at * 1000) },
            {
                name: 'Value',
                type: FieldType.number,
                labels,
                values: times.map((_, index) => values.get(index) ?? null),
                config: { displayNameFromDS: legendOf(target.legendFormat, labels) },
            },
        ],
    });
}

// The series of an instant as a table: a column for each label.
function atOnce(query, series) {
    const labels = [...new Set(series.flatMap((one) => Object.keys(one.metric)))].filter((label) => label !== '__name__');
    return toDataFrame({
        refId: query.refId,
        fields: [
            { name: 'Time', type: FieldType.time, values: series.map((one) => one.value[0] * 1000) },
            ...labels.map((label) => ({ name: label, type: FieldType.string, values: series.map((one) => one.metric[label] ?? '') })),
            { name: `Value #${query.refId}`, type: FieldType.number, values: series.map((one) => number(one.value[1])) },
        ],
    });
}

function framesOf({ panel, queries }) {
    return queries.flatMap((query) => {
        const target = panel.targets.find((target) => target.refId === query.refId);
        return query.instant ? [atOnce(query, query.series)] : query.series.map((series) => overTime(query, target, series));
    });
}

function withOptions(panel, frames) {
    const { defaults = {}, overrides = [] } = panel.fieldConfig ?? {};
    return applyFieldOverrides({
        data: frames,
        fieldConfig: {
            defaults: { color: { mode: panel.type === 'timeseries' ? 'palette-classic' : 'thresholds' }, ...defaults, custom: { ...CUSTOM, ...defaults.custom } },
            overrides,
        },
        fieldConfigRegistry: registry,
        replaceVariables: (text) => text,
        theme,
        timeZone: 'utc',
    });
}

function Lines({ panel, frames, width, height }) {
    const data = withOptions(panel, frames);
    data.forEach((frame) => frame.fields.forEach((field) => (field.state = { ...field.state, seriesIndex: data.indexOf(frame) })));
    return (
        <TimeSeries
            frames={data}
            structureRev={1}
            width={width}
            height={height}
            timeRange={RANGE}
            timeZone="utc"
            legend={panel.options?.legend ?? { showLegend: true, displayMode: 'list', placement: 'bottom', calcs: [] }}
            options={panel.options ?? {}}
        />
    );
}

function Figure({ panel, frames, width, height }) {
    const data = withOptions(panel, frames);
    const field = data.flatMap((frame) => frame.fields).find((field) => field.name.startsWith('Value'));
    const value = field.display(field.values[field.values.length - 1]);
    return <BigValue value={value} width={width} height={height} theme={theme} colorMode="value" graphMode="none" justifyMode="auto" textMode="value" />;
}

function List({ panel, frames, width, height }) {
    const [data, setData] = React.useState([]);
    React.useEffect(() => {
        const pending = transformDataFrame(panel.transformations ?? [], frames).subscribe((found) => setData(withOptions(panel, found)));
        return () => pending.unsubscribe();
    }, []);
    return data.length === 0 ? null : <Table data={data[0]} width={width} height={height} />;
}

// Grafana publishes no component for state timelines: these rows are drawn here.
function Timeline({ panel, frames, width, height }) {
    const options = Object.assign({}, ...(panel.fieldConfig.defaults.mappings ?? []).map((mapping) => mapping.options));
    const names = Math.min(330, width / 4);
    const row = Math.min(30, (height - 20) / Math.max(frames.length, 1));
    const x = (index, points) => names + (index / points) * (width - names);
    return (
        <svg width={width} height={height} fontSize={11} fontFamily="sans-serif" fill={theme.colors.text.primary}>
            {frames.map((frame, place) => {
                const field = frame.fields[1];
                const points = field.values.length;
                return (
                    <g key={place} transform={`translate(0 ${place * row})`}>
                        <text x={names - 8} y={row / 2 + 4} textAnchor="end">{field.config.displayNameFromDS}</text>
                        {field.values.map((value, index) =>
                            value === null ? null : (
                                <rect key={index} x={x(index, points)} y={row * 0.1} height={row * 0.8} width={(width - names) / points + 0.5} fill={theme.visualization.getColorByName(options[value]?.color ?? 'gray')} />
                            ),
                        )}
                    </g>
                );
            })}
        </svg>
    );
}

const KINDS = { timeseries: Lines, stat: Figure, table: List, 'state-timeline': Timeline };

class Guard extends React.Component {
    state = {};
    static getDerivedStateFromError(error) {
        return { error };
    }
    render() {
        if (!this.state.error) return this.props.children;
        console.error(`panel failed: ${this.props.title}: ${this.state.error.stack}`);
        return <pre style={{ color: 'red' }}>{this.props.title}: cannot be drawn</pre>;
    }
}

// The panels between the title of a row and the next one.
function panelsOf(title) {
    const start = dashboard.panels.findIndex((panel) => panel.type === 'row' && panel.title === title);
    const rest = dashboard.panels.slice(start + 1);
    const end = rest.findIndex((panel) => panel.type === 'row');
    return end < 0 ? rest : rest.slice(0, end);
}

function Board() {
    const shown = panelsOf(wanted);
    const top = Math.min(...shown.map((panel) => panel.gridPos.y));
    // draw.mjs looks for this line and for those of panels that failed.
    React.useEffect(() => console.log(`drawn ${shown.length} panels`), []);
    return shown.map((panel) => {
        const { x, y, w, h } = panel.gridPos;
        const Kind = KINDS[panel.type];
        const recorded = panels.find((one) => one.panel?.title === panel.title);
        return (
            <div key={panel.title} style={{ position: 'absolute', left: x * COLUMN + 4, top: (y - top) * UNIT + 4 }}>
                <Guard title={panel.title}>
                    <PanelChrome title={panel.title} width={w * COLUMN - 8} height={h * UNIT - 8}>
                        {(width, height) => <Kind panel={panel} frames={framesOf(recorded)} width={width} height={height} />}
                    </PanelChrome>
                </Guard>
            </div>
        );
    });
}

createRoot(document.getElementById('root')).render(
    <ThemeContext.Provider value={theme}>
        <Board />
    </ThemeContext.Provider>,
);

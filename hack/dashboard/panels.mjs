// Short forms for the panels of the dashboard.
import * as sdk from '@grafana/grafana-foundation-sdk/common';
import * as dashboard from '@grafana/grafana-foundation-sdk/dashboard';
import * as prometheus from '@grafana/grafana-foundation-sdk/prometheus';
import * as stat from '@grafana/grafana-foundation-sdk/stat';
import * as statetimeline from '@grafana/grafana-foundation-sdk/statetimeline';
import * as table from '@grafana/grafana-foundation-sdk/table';
import * as timeseries from '@grafana/grafana-foundation-sdk/timeseries';

export const datasource = { type: 'prometheus', uid: '${datasource}' };

// A query over time. `legend` is a template such as {{quorum}}.
export const over = (expr, legend) =>
    new prometheus.DataqueryBuilder().expr(flat(expr)).legendFormat(legend).range().datasource(datasource);

// A query for the end of the time range, as a table when it has no legend.
export const now = (expr, legend) => {
    const query = new prometheus.DataqueryBuilder().expr(flat(expr)).instant().datasource(datasource);
    return legend === undefined ? query.format(prometheus.PromQueryFormat.Table) : query.legendFormat(legend);
};

// Expressions are written over several lines for the reader of the generator.
export const flat = (expr) => expr.replace(/\s+/g, ' ').replace(/\( /g, '(').replace(/ \)/g, ')').trim();

const REFS = 'ABCDEFGH';

function panel(builder, { title, about, size: [width, height], unit, queries }) {
    builder.title(title).description(about).datasource(datasource).span(width).height(height);
    if (unit !== undefined) builder.unit(unit);
    queries.forEach((query, index) => builder.withTarget(query.refId(REFS[index])));
    return builder;
}

// Steps of thresholds: the first color is for everything below the first value.
export function steps(first, ...others) {
    const values = [{ value: null, color: first }, ...others.map(([value, color]) => ({ value, color }))];
    return new dashboard.ThresholdsConfigBuilder().mode(dashboard.ThresholdsMode.Absolute).steps(values);
}

// Texts and colors for single values: {'1': ['leads', 'green']}.
export function texts(mapping) {
    const options = Object.fromEntries(
        Object.entries(mapping).map(([value, [text, color]], index) => [value, { text, color, index }]),
    );
    return [{ type: dashboard.MappingType.ValueToText, options }];
}

// One figure. `thresholds` color it.
export function figure(options) {
    const reduce = new sdk.ReduceDataOptionsBuilder().calcs(['lastNotNull']);
    const builder = panel(new stat.PanelBuilder(), options)
        .reduceOptions(reduce)
        .graphMode(sdk.BigValueGraphMode.None)
        .colorMode(sdk.BigValueColorMode.Value)
        .thresholds(options.thresholds ?? steps('text'));
    if (options.decimals !== undefined) builder.decimals(options.decimals);
    return builder;
}

// Lines over time. `sum` adds a table of totals as the legend, `stacked` stacks the series, `bars` draws bars, `softMax` is the
// end of the axis while all values are less, `colors` names colors of series, `dashed` lines stand apart.
export function lines(options) {
    const legend = new sdk.VizLegendOptionsBuilder().showLegend(true).placement(sdk.LegendPlacement.Bottom);
    const mode = options.sum ? sdk.LegendDisplayMode.Table : sdk.LegendDisplayMode.List;
    legend.displayMode(mode).calcs(options.sum ? ['sum'] : []);
    if (options.sum) legend.sortBy('Total').sortDesc(true).placement(sdk.LegendPlacement.Right);
    const tooltip = new sdk.VizTooltipOptionsBuilder().mode(sdk.TooltipDisplayMode.Multi).sort(sdk.SortOrder.Descending);
    const builder = panel(new timeseries.PanelBuilder(), options)
        .legend(legend)
        .tooltip(tooltip)
        .lineWidth(1)
        .fillOpacity(options.stacked ? 40 : 10)
        .showPoints(sdk.VisibilityMode.Auto);
    if (options.bars) builder.drawStyle(sdk.GraphDrawStyle.Bars).fillOpacity(80);
    if (options.stacked) builder.stacking(new sdk.StackingConfigBuilder().mode(sdk.StackingMode.Normal).group('A'));
    if (options.min !== undefined) builder.min(options.min);
    if (options.max !== undefined) builder.max(options.max);
    if (options.softMax !== undefined) builder.axisSoftMax(options.softMax);
    if (options.scale) builder.scaleDistribution(options.scale);
    if (options.thresholds) {
        const style = new sdk.GraphThresholdsStyleConfigBuilder().mode(sdk.GraphThresholdsStyleMode.Dashed);
        builder.thresholds(options.thresholds).thresholdsStyle(style);
    }
    (options.dashed ?? []).forEach((name) =>
        builder.overrideByName(name, [
            { id: 'custom.lineStyle', value: { fill: 'dash', dash: [10, 10] } },
            { id: 'custom.stacking', value: { mode: 'none' } },
            { id: 'custom.fillOpacity', value: 0 },
            { id: 'color', value: { mode: 'fixed', fixedColor: 'red' } },
        ]),
    );
    Object.entries(options.colors ?? {}).forEach(([name, fixedColor]) =>
        builder.overrideByName(name, [{ id: 'color', value: { mode: 'fixed', fixedColor } }]),
    );
    return builder;
}

// A scale on which 1 and 1,000,000 are both visible, and numbers below 0 too.
export const wide = () =>
    new sdk.ScaleDistributionConfigBuilder().type(sdk.ScaleDistribution.Symlog).log(10).linearThreshold(1);

// One row for each series, colored by its value.
export function timeline(options) {
    const legend = new sdk.VizLegendOptionsBuilder().showLegend(false).displayMode(sdk.LegendDisplayMode.List).calcs([]);
    return panel(new statetimeline.PanelBuilder(), options)
        .legend(legend.placement(sdk.LegendPlacement.Bottom))
        .mappings(texts(options.values))
        .showValue(sdk.VisibilityMode.Auto)
        .mergeValues(true)
        .rowHeight(0.8)
        .fillOpacity(80)
        .lineWidth(0)
        .perPage(20);
}

// A table of the labels of the first query with one column for the value of each query.
// `columns` maps the name of a field to the title of its column, in order; other fields are hidden.
export function list(options) {
    const renameByName = options.columns;
    const order = Object.keys(options.columns);
    const fields = options.fields ?? {};
    const builder = panel(new table.PanelBuilder(), options)
        .withTransformation({ id: 'merge', options: {} })
        .withTransformation({ id: 'filterFieldsByName', options: { include: { names: order } } })
        .withTransformation({
            id: 'organize',
            options: {
                renameByName,
                indexByName: Object.fromEntries(order.map((name, index) => [name, index])),
                excludeByName: {},
            },
        });
    Object.entries(fields).forEach(([name, properties]) =>
        builder.overrideByName(options.columns[name], Object.entries(properties).map(([id, value]) => ({ id, value }))),
    );
    return builder;
}

// Prints the dashboard as JSON: `hack/dashboard.sh` writes it into the chart.
//
// Several replicas of the operator may export the same series, and while one takes over from another both do: every query
// aggregates over replicas. Queries about the processes themselves keep the label `instance`.
import * as dashboard from '@grafana/grafana-foundation-sdk/dashboard';
import { datasource, figure, flat, lines, list, now, over, steps, timeline, wide } from './panels.mjs';

const OF_CLUSTER = 'cluster=~"$cluster"';
const OF_QUORUM = `${OF_CLUSTER},quorum=~"$quorum"`;
const OF_LEASE = `${OF_QUORUM},lease_namespace=~"$namespace",lease=~"$lease"`;
const LEASE = 'cluster, quorum, lease_namespace, lease';
const NODE = 'cluster, quorum, redis_node';
const name = '{{lease_namespace}}/{{lease}}';

const lease = (metric, more = '') => `redislease_lease_${metric}{${OF_LEASE}${more}}`;
const quorum = (metric, more = '') => `redislease_${metric}{${OF_QUORUM}${more}}`;
const operator = (metric) => `redislease_${metric}{${OF_CLUSTER}}`;
const process = (metric) => `process_${metric}{${OF_CLUSTER}} and on (cluster, job, instance) ${operator('build_info')}`;
const rate = (series) => `rate(${series}[$__rate_interval])`;
const increase = (series) => `increase(${series}[$__rate_interval])`;
const quantile = (q, by, bucket) => `histogram_quantile(${q}, sum by (le, ${by}) (${rate(bucket)}))`;

const up = `max by (cluster, quorum) (${quorum('quorum_nodes', ',state="up"')})`;
const required = `max by (cluster, quorum) (${quorum('quorum_required_nodes')})`;
const leaders = `leader_election_master_status{${OF_CLUSTER},name=~"$quorum"}
    and on (cluster, job, instance) ${operator('build_info')}`;

const rows = {
    'At a glance': [
        figure({
            title: 'RedisLeases',
            about: 'All RedisLeases of this cluster.',
            size: [3, 4],
            queries: [now(`count(max by (${LEASE}) (${lease('held')}))`, 'leases')],
        }),
        figure({
            title: 'Active in this cluster',
            about: 'Leases that a pod of this cluster holds.',
            size: [3, 4],
            queries: [now(`sum(max by (${LEASE}) (${lease('active')}))`, 'active')],
        }),
        figure({
            title: 'Not held',
            about: 'Leases that no pod of any cluster holds, suspended ones among them.',
            size: [3, 4],
            thresholds: steps('green', [1, 'red']),
            queries: [now(`count(max by (${LEASE}) (${lease('held')}) == 0) or vector(0)`, 'not held')],
        }),
        figure({
            title: 'Redis nodes to spare',
            about: 'How many more Redis nodes may fail before a quorum loses its majority; the lowest of all quorums.',
            size: [3, 4],
            thresholds: steps('red', [0, 'orange'], [1, 'green']),
            queries: [now(`min(${up} - ${required})`, 'nodes')],
        }),
        figure({
            title: 'Renewals succeeded',
            about: 'Share of all renewals in the time range.',
            size: [3, 4],
            unit: 'percentunit',
            decimals: 2,
            thresholds: steps('red', [0.95, 'orange'], [0.99, 'green']),
            queries: [
                now(
                    `sum(increase(${quorum('renewals_total', ',result="success"')}[$__range]))
                        / sum(increase(${quorum('renewals_total')}[$__range]))`,
                    'succeeded',
                ),
            ],
        }),
        figure({
            title: 'Renewal margin, p1',
            about: 'Share of the lease that was left when a renewal succeeded; 99 % of the renewals left more.',
            size: [3, 4],
            unit: 'percentunit',
            decimals: 0,
            thresholds: steps('red', [0.34, 'orange'], [0.5, 'green']),
            queries: [
                now(
                    `histogram_quantile(0.01, sum by (le) (increase(${quorum('renew_margin_ratio_bucket')}[$__range])))`,
                    'margin',
                ),
            ],
        }),
        figure({
            title: 'Terms that ended',
            about: 'Changes of a holder in the time range.',
            size: [3, 4],
            decimals: 0,
            queries: [now(`sum(increase(${lease('transitions_total')}[$__range]))`, 'terms')],
        }),
        figure({
            title: 'Time not held, sum',
            about: 'Of all leases in the time range.',
            size: [3, 4],
            unit: 's',
            queries: [now(`sum(increase(${lease('unheld_seconds_total')}[$__range]))`, 'seconds')],
        }),
    ],
    Leases: [
        timeline({
            title: 'Holder of each lease',
            about: 'One row for each pod that has held a lease. A gap between two pods is a time without a holder.',
            size: [24, 9],
            values: { 1: ['holds the lease', 'green'] },
            queries: [
                over(
                    `max by (${LEASE}, holder_cluster, holder_pod) (${lease('holder_info')})`,
                    `${name}: {{holder_pod}} ({{holder_cluster}})`,
                ),
            ],
        }),
        list({
            title: 'Leases',
            about: 'The state at the end of the time range. A lease without a term has neither holder nor end.',
            size: [24, 8],
            queries: [
                now(`max by (${LEASE}, holder_cluster, holder_pod, holder_node) (${lease('holder_info')})`),
                now(`max by (${LEASE}) (${lease('fencing_token')})`),
                now(`max by (${LEASE}) (${lease('expiry_timestamp_seconds')} > 0) * 1000`),
                now(`sum by (${LEASE}) (increase(${lease('transitions_total')}[$__range]))`),
                now(`max by (${LEASE}) (${lease('held')})`),
            ],
            columns: {
                lease_namespace: 'Namespace',
                lease: 'Lease',
                quorum: 'Quorum',
                'Value #E': 'Held',
                holder_pod: 'Holder',
                holder_cluster: 'Cluster',
                holder_node: 'Kubernetes node',
                'Value #B': 'Fencing token',
                'Value #C': 'Ends unless renewed',
                'Value #D': 'Terms ended',
            },
            fields: {
                'Value #E': {
                    mappings: [
                        {
                            type: dashboard.MappingType.ValueToText,
                            options: { 0: { text: 'no', color: 'red', index: 0 }, 1: { text: 'yes', color: 'green', index: 1 } },
                        },
                    ],
                    'custom.cellOptions': { type: 'color-text' },
                    'custom.width': 70,
                },
                'Value #B': { unit: 'none', decimals: 0, 'custom.width': 160 },
                'Value #C': { unit: 'dateTimeAsIso', 'custom.width': 175 },
                'Value #D': { decimals: 0, 'custom.width': 110 },
                lease_namespace: { 'custom.width': 120 },
                quorum: { 'custom.width': 100 },
                holder_pod: { 'custom.width': 250 },
                holder_cluster: { 'custom.width': 110 },
                holder_node: { 'custom.width': 140 },
            },
        }),
        lines({
            title: 'Terms that ended, by reason',
            about: 'For all leases of the selected quorums. The runbook RedisLeaseFlapping explains the reasons.',
            size: [8, 8],
            bars: true,
            stacked: true,
            sum: true,
            queries: [over(`sum by (reason) (${increase(quorum('transitions_total'))})`, '{{reason}}')],
        }),
        lines({
            title: 'Time without a holder',
            about: 'Seconds in which no pod held the lease. A suspended lease is not counted.',
            size: [8, 8],
            unit: 's',
            min: 0,
            bars: true,
            queries: [over(`sum by (${LEASE}) (${increase(lease('unheld_seconds_total'))})`, name)],
        }),
        lines({
            title: 'Candidates',
            about: 'Pods that can be elected now, and pods that cannot.',
            size: [8, 8],
            min: 0,
            stacked: true,
            queries: [
                over(
                    `sum by (lease_namespace, lease, state) (max by (${LEASE}, state) (${lease('candidates')}))`,
                    `${name} {{state}}`,
                ),
            ],
        }),
        lines({
            title: 'Terms that ended, by lease',
            about: 'The ten leases with the most changes of their holder.',
            size: [12, 8],
            bars: true,
            queries: [over(`topk(10, sum by (${LEASE}) (${increase(lease('transitions_total'))}))`, name)],
        }),
        list({
            title: 'Conditions that are not True',
            about: 'At the end of the time range. `kubectl describe redislease` shows the reason and the message.',
            size: [12, 8],
            queries: [now(`max by (${LEASE}, condition, status) (${lease('status_condition', ',status!="True"')})`)],
            columns: { lease_namespace: 'Namespace', lease: 'Lease', condition: 'Condition', status: 'Status' },
        }),
    ],
    Renewals: [
        lines({
            title: 'Renewals, by result',
            about: 'no_quorum: too few votes; timeout: no answer in time; lost: too few nodes still have the keys.',
            size: [8, 8],
            unit: 'ops',
            min: 0,
            stacked: true,
            colors: { success: 'green', no_quorum: 'orange', timeout: 'yellow', lost: 'red' },
            queries: [over(`sum by (result) (${rate(quorum('renewals_total'))})`, '{{result}}')],
        }),
        lines({
            title: 'Duration of a renewal',
            about: 'Until a majority of the Redis nodes has confirmed it. Successful renewals only.',
            size: [8, 8],
            unit: 's',
            min: 0,
            queries: [0.5, 0.99].map((q) =>
                over(quantile(q, 'quorum', quorum('renew_duration_seconds_bucket')), `{{quorum}} p${q * 100}`),
            ),
        }),
        lines({
            title: 'Margin of a renewal',
            about: 'Share of the lease that was left when the renewal succeeded: the early warning.',
            size: [8, 8],
            unit: 'percentunit',
            min: 0,
            max: 1,
            thresholds: steps('transparent', [0.5, 'orange']),
            queries: [0.01, 0.5].map((q) =>
                over(quantile(q, 'quorum', quorum('renew_margin_ratio_bucket')), `{{quorum}} p${q * 100}`),
            ),
        }),
        lines({
            title: 'Failed renewals, by lease',
            about: 'The ten leases with the most failed renewals.',
            size: [12, 8],
            min: 0,
            bars: true,
            queries: [
                over(`topk(10, sum by (${LEASE}) (${increase(lease('renewals_total', ',result="failure"'))}))`, name),
            ],
        }),
        lines({
            title: 'Time until the lease ends',
            about: 'Unless it is renewed, at each scrape. A sawtooth: each renewal sets it back to the lease duration.',
            size: [12, 8],
            unit: 's',
            min: 0,
            queries: [over(`max by (${LEASE}) (${lease('expiry_timestamp_seconds')} > 0) - max by (${LEASE}) (timestamp(${lease('expiry_timestamp_seconds')}))`, name)],
        }),
    ],
    'Redis quorum': [
        lines({
            title: 'Redis nodes, by state',
            about: 'Only nodes in state up vote. Averaged over the replicas of the operator. The dashed line is the majority.',
            size: [8, 8],
            min: 0,
            stacked: true,
            dashed: ['required'],
            colors: { up: 'green', quarantined: 'yellow', down: 'red', misconfigured: 'purple' },
            queries: [
                over(
                    `sum by (state) (avg by (cluster, quorum, state) (${quorum('quorum_nodes')}))`,
                    '{{state}}',
                ),
                over(`sum(${required})`, 'required'),
            ],
        }),
        timeline({
            title: 'Redis nodes that vote',
            about: 'As the replica of the operator sees it that reaches the fewest nodes.',
            size: [16, 8],
            values: { 0: ['does not vote', 'red'], 1: ['votes', 'green'] },
            queries: [over(`min by (${NODE}) (${quorum('redis_up')})`, '{{quorum}} {{redis_node}}')],
        }),
        lines({
            title: 'Answer time of the Redis nodes, p99',
            about: 'Commands without an answer are errors of kind timeout.',
            size: [8, 8],
            unit: 's',
            min: 0,
            queries: [over(quantile(0.99, NODE, quorum('redis_command_duration_seconds_bucket')), '{{quorum}} {{redis_node}}')],
        }),
        lines({
            title: 'Redis errors, by kind',
            about: 'Requests without a vote and failed connections.',
            size: [8, 8],
            min: 0,
            bars: true,
            stacked: true,
            sum: true,
            queries: [over(`sum by (redis_node, kind) (${increase(quorum('redis_errors_total'))}) > 0`, '{{redis_node}} {{kind}}')],
        }),
        lines({
            title: 'Clock offset of the Redis nodes',
            about: 'Clock of the Redis node minus clock of the operator. An alert fires at 2 s.',
            size: [8, 8],
            unit: 's',
            queries: [over(`max by (${NODE}) (${quorum('redis_clock_offset_seconds')})`, '{{quorum}} {{redis_node}}')],
        }),
        lines({
            title: 'Restarts of the Redis nodes',
            about: 'How often a node returned as another server process. It does not vote for maxLeaseDuration after that.',
            size: [12, 8],
            min: 0,
            bars: true,
            softMax: 1,
            queries: [over(`max by (${NODE}) (${increase(quorum('redis_restarts_total'))})`, '{{quorum}} {{redis_node}}')],
        }),
        lines({
            title: 'Redis nodes of another configuration',
            about: 'Nodes whose marker names another configuration of the quorum. Always 0 in a healthy installation.',
            size: [12, 8],
            min: 0,
            thresholds: steps('transparent', [1, 'red']),
            softMax: 1,
            queries: [over(`max by (cluster, quorum) (${quorum('quorum_config_mismatch')})`, '{{quorum}}')],
        }),
    ],
    'Handover and safety': [
        lines({
            title: 'Duration of a handover',
            about: 'From the end of a term until status names the next holder. graceful: the old holder was proven to have stopped; failover: its keys had to expire.',
            size: [8, 8],
            unit: 's',
            min: 0,
            queries: [0.5, 0.99].map((q) =>
                over(quantile(q, 'kind', operator('handover_duration_seconds_bucket')), `{{kind}} p${q * 100}`),
            ),
        }),
        lines({
            title: 'Handovers, by kind',
            about: 'Changes from one holder to the next.',
            size: [8, 8],
            min: 0,
            bars: true,
            stacked: true,
            colors: { graceful: 'green', failover: 'orange' },
            queries: [over(`sum by (kind) (${increase(operator('handover_duration_seconds_count'))})`, '{{kind}}')],
        }),
        lines({
            title: 'Clusters in which a lease is active',
            about: 'Never more than 1. It compares clusters only if this data source has the series of all of them.',
            size: [8, 8],
            min: 0,
            thresholds: steps('transparent', [1.5, 'red']),
            queries: [
                over(
                    `sum by (fingerprint, lease_namespace, lease) (
                        max by (cluster, fingerprint, lease_namespace, lease) (
                            ${lease('active')}
                            * on (cluster, namespace, job, instance, quorum) group_left (fingerprint) redislease_quorum_info
                        )
                    )`,
                    name,
                ),
            ],
        }),
        lines({
            title: 'Growth of the fencing tokens',
            about: 'Difference to the token before. Tokens never fall: a value below 0 is a defect.',
            size: [12, 8],
            bars: true,
            scale: wide(),
            queries: [
                over(
                    `max by (${LEASE}) (${lease('fencing_token')} > 0)
                        - max by (${LEASE}) (${lease('fencing_token')} offset $__rate_interval > 0)`,
                    name,
                ),
            ],
        }),
        lines({
            title: 'Contained panics',
            about: 'Defects of the operator that were contained to one lease or one Redis node. Please report each of them.',
            size: [12, 8],
            min: 0,
            thresholds: steps('transparent', [1, 'red']),
            softMax: 1,
            queries: [over(`sum by (part) (${increase(operator('panics_total'))})`, '{{part}}')],
        }),
    ],
    Operator: [
        timeline({
            title: 'Leader of each quorum',
            about: 'The replica that decides about the leases of a quorum. The others stand by.',
            size: [12, 6],
            values: { 0: ['stands by', 'blue'], 1: ['leads', 'green'] },
            queries: [over(`max by (cluster, name, instance) (${leaders})`, '{{name}}: {{instance}}')],
        }),
        list({
            title: 'Replicas',
            about: 'The processes of the operator.',
            size: [12, 6],
            queries: [
                now(`max by (cluster, instance, version) (${operator('build_info')})`),
                now(`max by (cluster, instance) (${process('start_time_seconds')}) * 1000`),
                now(`max by (cluster, instance) (${process('threads')})`),
            ],
            columns: {
                instance: 'Instance',
                version: 'Version',
                'Value #B': 'Started',
                'Value #C': 'Threads',
            },
            fields: { 'Value #B': { unit: 'dateTimeAsIso' } },
        }),
        lines({
            title: 'Reconciliations',
            about: 'How often the operator decides about a lease or a quorum.',
            size: [8, 8],
            unit: 'ops',
            min: 0,
            queries: [over(`sum by (controller, result) (${rate(operator('reconcile_total'))})`, '{{controller}} {{result}}')],
        }),
        lines({
            title: 'Duration of a reconciliation, p99',
            about: 'Without the calls to the API server, which a queue of their own sends.',
            size: [8, 8],
            unit: 's',
            min: 0,
            queries: [over(quantile(0.99, 'controller', operator('reconcile_duration_seconds_bucket')), '{{controller}}')],
        }),
        lines({
            title: 'Writes to the API server',
            about: 'By kind of object and result. Renewals write nothing.',
            size: [8, 8],
            unit: 'ops',
            min: 0,
            stacked: true,
            queries: [over(`sum by (kind, result) (${rate(operator('api_writes_total'))}) > 0`, '{{kind}} {{result}}')],
        }),
        lines({
            title: 'Calls to the API server that wait',
            about: 'By how urgent they are. A growing queue means that the API server is slow.',
            size: [8, 8],
            min: 0,
            stacked: true,
            softMax: 1,
            queries: [over(`sum by (priority) (${operator('api_queue_length')})`, '{{priority}}')],
        }),
        lines({
            title: 'Kubernetes events that were not sent',
            about: 'Because too many waited. Only the report is missing: no decision depends on events.',
            size: [8, 8],
            min: 0,
            softMax: 1,
            queries: [over(`sum by (instance) (${increase(operator('events_dropped_total'))})`, '{{instance}}')],
        }),
        lines({
            title: 'Open files, share of the limit',
            about: 'Connections count as open files.',
            size: [8, 8],
            unit: 'percentunit',
            min: 0,
            queries: [
                over(
                    `max by (instance) (process_open_fds{${OF_CLUSTER}} / (${process('max_fds')}))`,
                    '{{instance}}',
                ),
            ],
        }),
        lines({
            title: 'Writes to pods and workloads without effect',
            about: 'Refused by the API server (denied), stored with other values (altered), or undone by others and written again (corrected). The events on the RedisLease name the field.',
            size: [8, 8],
            min: 0,
            softMax: 1,
            queries: [
                over(`sum by (kind, reason) (${increase(operator('writes_refused_total'))}) > 0`, '{{kind}} {{reason}}'),
                over(`sum by (kind) (${increase(operator('corrections_total'))}) > 0`, '{{kind}} corrected'),
            ],
        }),
        lines({
            title: 'CPU',
            about: 'Cores in use.',
            size: [8, 8],
            min: 0,
            queries: [over(`max by (instance) (${rate(`process_cpu_seconds_total{${OF_CLUSTER}}`)} and on (cluster, job, instance) ${operator('build_info')})`, '{{instance}}')],
        }),
        lines({
            title: 'Memory',
            about: 'Resident memory.',
            size: [8, 8],
            unit: 'bytes',
            min: 0,
            queries: [over(`max by (instance) (${process('resident_memory_bytes')})`, '{{instance}}')],
        }),
    ],
};

// Each variable narrows the ones after it.
const variable = (name, label, query) =>
    new dashboard.QueryVariableBuilder(name)
        .label(label)
        .query({ query: `label_values(${query})`, refId: `variable-${name}` })
        .definition(`label_values(${query})`)
        .datasource(datasource)
        .refresh(dashboard.VariableRefresh.OnTimeRangeChanged)
        .sort(dashboard.VariableSort.AlphabeticalAsc)
        .multi(true)
        .includeAll(true)
        .allValue('.*')
        .current({ selected: true, text: ['All'], value: ['$__all'] });

const holder = `max by (${LEASE}, holder_cluster, holder_pod) (${lease('holder_info')})`;
const holderBefore = holder.replace(`${OF_LEASE}}`, `${OF_LEASE}} offset 1m`);

const board = new dashboard.DashboardBuilder('RedisLease')
    .uid('redislease')
    .description('Leases, the Redis quorums that hold them, and the operator. Generated: see hack/dashboard in the repository.')
    .tags(['redislease', 'kubernetes'])
    .editable()
    .timezone('browser')
    .time({ from: 'now-6h', to: 'now' })
    .refresh('30s')
    .tooltip(dashboard.DashboardCursorSync.Crosshair)
    .withVariable(new dashboard.DatasourceVariableBuilder('datasource').label('Data source').type('prometheus'))
    .withVariable(variable('cluster', 'Cluster', 'redislease_build_info, cluster'))
    .withVariable(variable('quorum', 'Quorum', `redislease_quorum_required_nodes{${OF_CLUSTER}}, quorum`))
    .withVariable(variable('namespace', 'Namespace', `redislease_lease_held{${OF_QUORUM}}, lease_namespace`))
    .withVariable(
        variable('lease', 'Lease', `redislease_lease_held{${OF_QUORUM},lease_namespace=~"$namespace"}, lease`),
    )
    .annotation(
        new dashboard.AnnotationQueryBuilder()
            .name('Holder changed')
            .datasource(datasource)
            .enable(true)
            .iconColor('purple')
            .expr(flat(`${holder} unless ${holderBefore}`))
            .step('15s')
            .titleFormat(name)
            .textFormat('{{holder_pod}} in {{holder_cluster}} holds the lease.'),
    );

for (const [title, panels] of Object.entries(rows)) {
    board.withRow(new dashboard.RowBuilder(title));
    panels.forEach((panel) => board.withPanel(panel));
}

console.log(JSON.stringify(board.build(), null, 2));

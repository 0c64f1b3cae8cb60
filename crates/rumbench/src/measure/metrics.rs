//! Table of all metrics: name, unit, definition, formula. `list metrics` and `explain` print it.

/// One metric of `result.json`.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Name as in `result.json`, fields of a group joined by a dot.
    pub name: &'static str,
    /// Unit, empty for text.
    pub unit: &'static str,
    /// Meaning of the metric.
    pub definition: &'static str,
    /// Formula, with the source.
    pub formula: &'static str,
    /// True if a higher value is better, false if a lower one is. None: neither.
    pub higher_is_better: Option<bool>,
}

const fn metric(
    name: &'static str,
    unit: &'static str,
    higher_is_better: Option<bool>,
    definition: &'static str,
    formula: &'static str,
) -> Metric {
    Metric {
        name,
        unit,
        definition,
        formula,
        higher_is_better,
    }
}

const MORE: Option<bool> = Some(true);
const LESS: Option<bool> = Some(false);

/// Every metric, in the order of the groups performance, quality of service, efficiency, size.
#[rustfmt::skip]
pub const METRICS: &[Metric] = &[
    metric("ops_per_s", "operations/s", MORE, "Operations that ended well, per second of wall clock, over all clients.",
        "operations / seconds; seconds run from the release of the clients to the end of the last one"),
    metric("rows_per_s", "rows/s", MORE, "Rows read or written per second.", "rows / seconds"),
    metric("operations", "operations", None, "Operations that ended well.", "sum over clients"),
    metric("errors", "operations", LESS, "Operations that failed. They are not in the latency tables.", "sum over clients"),
    metric("retries", "transactions", LESS, "Transactions run again after a conflict, deadlock or lock timeout.", "sum over clients"),
    metric("rate", "operations/s", None, "The rate that was asked for, over all clients.", "setting `rate`"),
    metric("missed_arrivals", "operations", LESS, "Intended starts before the end of the phase that no client reached.",
        "intended starts before the end - starts"),
    metric("pacing_error_us", "us", LESS, "How late a client that had nothing else to do began its operation.",
        "actual start - intended start, where the previous operation had ended before the intended start"),
    metric("background.ops_per_s", "operations/s", None, "Operations of background clients, at a rate of their own; in no other throughput.",
        "their operations / seconds of the phase"),
    metric("background.rows_per_s", "rows/s", MORE, "Rows that they inserted, where rows are what counts: background inserts in insert-benchmark and large-values.",
        "rows / seconds of the phase"),
    metric("background.rows_rate", "rows/s", None, "The rows that were asked of them.", "insert-benchmark: clients x the rate in the step's name; large-values: insert_rate"),
    metric("background.rate", "operations/s", None, "The rate that was asked of them.", "kv-sequence: writer_mib_per_s / bytes of a row"),
    metric("background.latency_us", "us", LESS, "Their response time; in no other latency.", "end - intended start"),
    metric("background.cpu_us_per_op", "us/op", LESS, "CPU of their threads for one of their operations, laboratory and engine together; in no part of `cpu_us_per_op`.",
        "thread CPU / their operations"),
    metric("latency_us", "us", LESS, "Response time: what a caller waits. With a rate it includes waiting for earlier operations.",
        "end - intended start (closed loop: end - actual start); HDR histogram with 3 significant digits, maximum exact"),
    metric("response_buckets", "operations", None, "Responses by the bounds of the classic response-time table: 256 us, 1, 4, 16, 64, 256 ms, 1, 4, 16 s, longer.",
        "count of response times up to and with each bound"),
    metric("service_us", "us", LESS, "Service time of the engine call alone.", "end - actual start"),
    metric("stall_seconds", "s", LESS, "Seconds in which almost nothing was done.",
        "whole one-second intervals with less than 10 % of the median interval's operations"),
    metric("longest_stall_ms", "ms", LESS, "The longest time in which no client completed any operation.",
        "largest gap between adjacent completions of all clients, the start and the end of the phase included, at millisecond resolution"),
    metric("cpu_us_per_op.total", "us/op", LESS, "CPU of client, engine and server for one operation.",
        "client + engine_foreground + engine_background + server"),
    metric("cpu_us_per_op.client", "us/op", LESS, "The laboratory's own CPU on the client threads: choosing, generating, timing, waiting.",
        "client thread CPU of the same operation stream on the `null` engine / operations, + waiting for intended starts / operations; for a server all of the client threads' CPU, its protocol and the kernel's part included"),
    metric("cpu_us_per_op.client_user", "us/op", LESS, "User mode part of `cpu_us_per_op.client`.",
        "the same from user time; kernel clock ticks scaled to the thread CPU clock"),
    metric("cpu_us_per_op.engine_foreground", "us/op", LESS, "The engine's CPU inside the clients' calls.",
        "CPU of the client threads / operations - client; without calibration the client is included"),
    metric("cpu_us_per_op.engine_foreground_sampled", "us/op", LESS, "Cross-check of `engine_foreground`; not part of the total.",
        "thread CPU clock around every 64th call of a client, less the clock's own cost, / calls sampled"),
    metric("cpu_us_per_op.engine_background", "us/op", LESS, "CPU of the engine's own threads: flush, compaction, checkpoint.",
        "(process CPU - client threads - background client - sampler) / operations"),
    metric("cpu_us_per_op.server", "us/op", LESS, "CPU of the server's processes; absent for embedded engines.", "(user + system time of the first process and all that it started, /proc/PID/stat) / operations"),
    metric("cpu_us_per_op.machine", "us/op", LESS, "CPU of the whole machine, whoever used it; not part of the total.",
        "busy time in /proc/stat (user, nice, system, irq, softirq) / operations"),
    metric("context_switches_per_op", "1/op", LESS, "Voluntary and involuntary context switches.",
        "sum over the threads of the process and of a server's processes (/proc/PID/task/*/status) / operations; a server's process that ends within the phase counts as last seen, at most a second before"),
    metric("counts_per_op", "1/op", LESS, "Instructions, cycles, misses of the last cache, of the TLB and of guessed branches, and page faults for one operation: of engine, server and laboratory together. Only under `--profile`, and where the machine has the counter.",
        "counters of the processor, by perf_event_open for all threads and processes of the trial, / operations; one that had its counter for a part of the time only is extrapolated"),
    metric("profile", "", None, "On which functions CPU time went: shares of samples, and a flame graph for each phase in the folder of the result. Only under `--profile`.",
        "every 1/199 s of CPU time of each thread the kernel notes where it is; own_share: samples in which the function was running, share: samples in which it was on the stack"),
    metric("reads_per_op", "1/op", LESS, "Read requests that reached the device.", "requests of `io_source` / operations"),
    metric("kb_read_per_op", "KiB/op", LESS, "KiB read from the device.", "bytes of `io_source` / 1024 / operations"),
    metric("writes_per_op", "1/op", LESS, "Write requests that reached the device; discards are not counted.", "requests of `io_source` / operations"),
    metric("kb_written_per_op", "KiB/op", LESS, "KiB written within the phase; what is still in the page cache is not in it.",
        "bytes of `io_source` / 1024 / operations"),
    metric("kb_written_per_op_settled", "KiB/op", LESS, "KiB written within the phase and by working off its backlog afterwards.",
        "(bytes of the phase + bytes of the settle phase that works off its backlog) / 1024 / operations; a settle counts for the last phase since the settle before it that wrote; absent if background writers of several phases made the backlog"),
    metric("written_bytes", "bytes", None, "Keys and values that clients wrote, the background client included; absent where the workload does not count them.",
        "sum of key and value lengths over all writes"),
    metric("stored_bytes.raw", "bytes", None, "Keys and values of the rows that the database holds after a settle; absent where the workload does not count them.",
        "sum of key and value lengths over all inserts: large-values only inserts"),
    metric("stored_bytes.compressed", "bytes", None, "What a dense codec would make of these rows: the size that a database is compared with.",
        "raw x ratio of a sample: up to 16 MiB of rows from all of the load, keys and values one after the other, as one zstd frame at level 3"),
    metric("io_source", "", None, "Where reads and writes were counted.",
        "`device NAME`: /sys/dev/block of the data directory's device, everything on it; `process`: /proc/PID/io of the laboratory and of a server's processes, which counts when pages become dirty"),
    metric("process_io", "bytes, calls", LESS, "Input and output of the process, and of a server's processes, as the kernel charges it.",
        "/proc/PID/io: read_bytes, write_bytes - cancelled_write_bytes, syscr, syscw"),
    metric("size_bytes.data", "bytes", LESS, "Files that hold data, without logs that can go at any time.", "allocated blocks x 512 of the files the engine names as data"),
    metric("size_bytes.directory", "bytes", LESS, "The whole data directory.", "allocated blocks x 512"),
    metric("size_bytes.peak", "bytes", LESS, "Largest size of the directory during the phase.", "largest of samples about a second apart"),
    metric("rss_bytes.peak", "bytes", LESS, "Largest resident set during the phase, laboratory and server included.", "largest of one-second samples of VmRSS; of a server RssAnon of all its processes + the largest RssShmem + the largest RssFile, so that what they share counts once"),
    metric("rss_bytes.anonymous", "bytes", LESS, "Heap and stacks at the end of the phase, without mapped files and shared memory.", "RssAnon of the process and of a server's processes"),
    metric("amplification.read", "1/op", LESS, "Device reads for one operation.", "reads_per_op where the source is a device"),
    metric("amplification.write", "ratio", LESS, "Bytes written within the phase against what clients wrote.",
        "kb_written x 1024 / written_bytes; where a workload does not count them, of the load only: / estimated bytes of the load"),
    metric("amplification.write_settled", "ratio", LESS, "The same with the bytes of working off the phase's backlog.",
        "(bytes of the phase + bytes of the settle phase that works off its backlog) / written_bytes"),
    metric("amplification.space", "ratio", LESS, "Data files against what the client loaded.",
        "size_bytes.data after settle / stored_bytes.raw; where a workload does not count them: / estimated bytes of the load"),
    metric("amplification.space_compressed", "ratio", LESS, "Data files against the compressed size of the rows.",
        "size_bytes.data after settle / stored_bytes.compressed"),
    metric("device_years", "years", MORE, "How long a device lasts that takes what the engine writes, day and night, at the measured throughput.",
        "endurance x 10^12 / (ops_per_s x kb_written_per_op_settled x 1024) / 31,556,952 s; endurance in TB written: `--endurance`, 600 by default; kb_written_per_op where no settle followed; of a load rows in place of operations; wear inside the device is not in it"),
    metric("device_writes", "TB per 10^9 op", LESS, "What a thousand million operations write to the device, whatever their rate.",
        "kb_written_per_op_settled x 1024 x 10^9 / 10^12"),
    metric("databases_per_tb", "databases", MORE, "How many databases of this size a terabyte of storage holds.",
        "10^12 / size_bytes.directory after the last settle"),
    metric("cores_per_10000", "cores", LESS, "CPUs that 10,000 operations a second keep busy, without the laboratory's own.",
        "(engine_foreground + engine_background + server of cpu_us_per_op) x 10,000 / 10^6; without calibration the client is in it"),
];

/// Returns the metric with this name.
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the table of the guide, from the same source as `explain`.
    fn guide_table() -> String {
        let mut table =
            String::from("| name | unit | definition | formula |\n| --- | --- | --- | --- |\n");
        for metric in METRICS {
            table += &format!(
                "| `{}` | {} | {} | {} |\n",
                metric.name, metric.unit, metric.definition, metric.formula
            );
        }
        table
    }

    #[test]
    fn guide_holds_the_same_table_of_metrics() {
        let path = "../../docs/guide/metrics.md";
        let text = std::fs::read_to_string(path).unwrap();
        let (head, rest) = text.split_once("<!-- metrics begin -->\n").unwrap();
        let (_, tail) = rest.split_once("<!-- metrics end -->\n").unwrap();
        let table = guide_table();
        let wanted = format!("{head}<!-- metrics begin -->\n{table}<!-- metrics end -->\n{tail}");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &wanted).unwrap();
        } else {
            assert!(
                text == wanted,
                "docs/guide/metrics.md is behind; UPDATE=1 rewrites it"
            );
        }
    }

    #[test]
    fn metric_names_are_unique_and_fully_described() {
        for (i, metric) in METRICS.iter().enumerate() {
            assert!(
                METRICS[..i].iter().all(|other| other.name != metric.name),
                "{} occurs twice",
                metric.name
            );
            assert!(!metric.definition.is_empty() && !metric.formula.is_empty());
        }
    }
}

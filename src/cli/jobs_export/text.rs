//! The files, as text. Pure.

use super::Scheduled;
use crate::duration::duration_text;
use crate::error::ErrorKind;

const GENERATED: &str = "# Made from the job files by `lore jobs export`; do not edit.\n";

/// What happens to a job whose run ended with a kind of error: whether another try, unchanged
/// and at once, is useless.
fn is_final(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Usage
        | ErrorKind::NoUsableTokens
        | ErrorKind::Config
        | ErrorKind::TokenNotSet
        | ErrorKind::Auth
        | ErrorKind::SourceNotFound
        | ErrorKind::DatabaseVersion
        | ErrorKind::InvalidEnumValue
        | ErrorKind::EmbeddingModelNotFound
        | ErrorKind::ReferenceNotFound
        | ErrorKind::ItemsFailing
        | ErrorKind::IntegrityFindings
        | ErrorKind::DiskFull => true,
        ErrorKind::Internal
        | ErrorKind::RateLimited
        | ErrorKind::Network
        | ErrorKind::DatabaseBusy
        | ErrorKind::Database
        | ErrorKind::Io
        | ErrorKind::EmbeddingUnavailable
        | ErrorKind::EmbeddingFailed
        | ErrorKind::RunFailed
        | ErrorKind::Locked
        | ErrorKind::Fenced
        | ErrorKind::Interrupted
        | ErrorKind::Terminated => false,
    }
}

fn final_codes() -> Vec<u8> {
    let mut codes: Vec<u8> =
        ErrorKind::ALL.iter().filter(|kind| is_final(**kind)).map(|kind| kind.exit_code()).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

fn lock_args(job: &Scheduled) -> Vec<String> {
    match job.lock_wait {
        None => vec!["--if-locked".to_owned(), "skip".to_owned()],
        Some(wait) => ["--if-locked", "wait", "--lock-wait"]
            .map(str::to_owned)
            .into_iter()
            .chain([duration_text::format(wait)])
            .collect(),
    }
}

/// A text of a job file as a YAML string.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''").replace(['\n', '\r'], " "))
}

/// CronJobs. What they share with the rest of the base: the volume `lore-data`, the config
/// map `lore-config`, the secret `lore-secrets`.
pub(super) fn kubernetes(jobs: &[Scheduled], zone: &str) -> String {
    let mut out = GENERATED.to_owned();
    for job in jobs {
        out.push_str("---\n");
        out.push_str(&cron_job(job, zone));
    }
    out
}

fn cron_job(job: &Scheduled, zone: &str) -> String {
    let args: Vec<String> =
        ["run".to_owned(), job.name.clone(), "--log-format".to_owned(), "json".to_owned()]
            .into_iter()
            .chain(lock_args(job))
            .map(|arg| quoted(&arg))
            .collect();
    let codes: Vec<String> = final_codes().iter().map(u8::to_string).collect();
    KUBERNETES
        .replace("NAME", &job.name)
        .replace("DESCRIPTION", &quoted(&job.description))
        .replace("SCHEDULE", &quoted(&job.cron))
        .replace("ZONE", zone)
        .replace("DEADLINE", &job.deadline_s.to_string())
        .replace("FINAL_CODES", &codes.join(", "))
        .replace("ARGS", &args.join(", "))
}

const KUBERNETES: &str = "\
apiVersion: batch/v1
kind: CronJob
metadata:
  name: lore-NAME
  labels:
    app.kubernetes.io/name: lore
    app.kubernetes.io/component: job
  annotations:
    description: DESCRIPTION
spec:
  schedule: SCHEDULE
  # Without it the zone of the controller would decide.
  timeZone: ZONE
  # Best effort only: the app lock is what keeps two runs apart.
  concurrencyPolicy: Forbid
  # A start that was missed by more than this is left to the next one.
  startingDeadlineSeconds: 300
  successfulJobsHistoryLimit: 3
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 2
      activeDeadlineSeconds: DEADLINE
      ttlSecondsAfterFinished: 86400
      podFailurePolicy:
        rules:
          # A pod that was evicted says nothing about the job.
          - action: Ignore
            onPodConditions:
              - type: DisruptionTarget
                status: 'True'
          # Trying again changes nothing: somebody has to look (see RUNBOOK.md).
          - action: FailJob
            onExitCodes:
              containerName: lore
              operator: In
              values: [FINAL_CODES]
      template:
        metadata:
          labels:
            app.kubernetes.io/name: lore
            app.kubernetes.io/component: job
            lore.job: NAME
        spec:
          restartPolicy: Never
          terminationGracePeriodSeconds: 30
          automountServiceAccountToken: false
          enableServiceLinks: false
          securityContext:
            runAsNonRoot: true
            runAsUser: 10001
            runAsGroup: 10001
            fsGroup: 10001
            fsGroupChangePolicy: OnRootMismatch
            seccompProfile:
              type: RuntimeDefault
          containers:
            - name: lore
              image: lore
              args: [ARGS]
              envFrom:
                - secretRef:
                    name: lore-secrets
              env:
                - name: LORE__DATABASE__PATH
                  value: /data/lore.db
              resources:
                requests:
                  cpu: 100m
                  memory: 256Mi
                limits:
                  memory: 1Gi
              securityContext:
                allowPrivilegeEscalation: false
                readOnlyRootFilesystem: true
                capabilities:
                  drop: [ALL]
              volumeMounts:
                - name: data
                  mountPath: /data
                - name: config
                  mountPath: /etc/lore
                  readOnly: true
                - name: tmp
                  mountPath: /tmp
          volumes:
            - name: data
              persistentVolumeClaim:
                claimName: lore-data
            - name: config
              configMap:
                name: lore-config
            - name: tmp
              emptyDir:
                sizeLimit: 256Mi
";

/// One timer for each job; they start `lore@JOB.service`.
pub(super) fn systemd(jobs: &[Scheduled], zone: &str) -> Vec<(String, String)> {
    let one = |job: &Scheduled| {
        let times: String =
            job.schedule.on_calendar(zone).iter().map(|time| format!("OnCalendar={time}\n")).collect();
        let text = format!(
            "{GENERATED}[Unit]\nDescription=lore: start job {name}\n\n[Timer]\n{times}Unit=lore@{name}.service\n\
             # A start that was missed while the machine was off is made up for.\nPersistent=true\nRandomizedDelaySec=20s\n\
             AccuracySec=5s\n\n[Install]\nWantedBy=timers.target\n",
            name = job.name,
        );
        (format!("lore-{}.timer", job.name), text)
    };
    jobs.iter().map(one).collect()
}

/// A pipeline whose jobs are picked by the variable `LORE_JOB` of a scheduled pipeline.
pub(super) fn gitlab_ci(jobs: &[Scheduled]) -> String {
    let mut out = format!("{GENERATED}{GITLAB_CI}");
    for job in jobs {
        out.push_str(&format!(
            "\n# Schedule: {cron}\nlore-{name}:\n  extends: .lore\n  variables:\n    LORE_ARGS: {args}\n  timeout: {minutes} minutes\n  rules:\n    \
             - if: $CI_PIPELINE_SOURCE == \"schedule\" && $LORE_JOB == \"{name}\"\n",
            cron = job.cron,
            name = job.name,
            args = quoted(&format!("run {} {}", job.name, lock_args(job).join(" "))),
            minutes = job.deadline_s.div_ceil(60),
        ));
    }
    out
}

const GITLAB_CI: &str = "\
#
# Make one scheduled pipeline for each job below (Build > Pipeline schedules) with the cron
# text of its comment and the variable LORE_JOB set to the job's name. GITLAB_TOKEN is a
# masked CI/CD variable. The database is kept in the cache of the branch.
.lore:
  image:
    name: $LORE_IMAGE
    entrypoint: ['']
  # Two pipelines must not work on one cache.
  resource_group: lore
  interruptible: false
  cache:
    key: lore-database
    paths: [lore-data/]
    # Also after a failure: what was stored is not fetched again.
    when: always
  variables:
    LORE__DATABASE__PATH: $CI_PROJECT_DIR/lore-data/lore.db
    LORE__METRICS__TEXTFILE: $CI_PROJECT_DIR/lore.prom
  script:
    - mkdir -p lore-data
    - lore $LORE_ARGS --log-format json
  artifacts:
    when: always
    expire_in: 1 week
    paths: [lore.prom]
    reports:
      metrics: lore.prom
";

/// A workflow that starts the job whose schedule fired.
pub(super) fn github_actions(jobs: &[Scheduled]) -> String {
    let mut out = format!("{GENERATED}name: lore\n\non:\n  schedule:\n");
    for job in jobs {
        out.push_str(&format!("    - cron: {} # {}\n", quoted(&job.cron), job.name));
    }
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    out.push_str(&GITHUB_HEAD.replace("NAMES", &names.join(", ")));
    let minutes = jobs.iter().map(|job| job.deadline_s.div_ceil(60)).max().unwrap_or(60);
    out.push_str(&GITHUB_JOB.replace("MINUTES", &minutes.to_string()));
    for job in jobs {
        out.push_str(&format!(
            "            {cron}|{name}) set -- run {name} {args} ;;\n",
            cron = quoted(&job.cron),
            name = job.name,
            args = lock_args(job).join(" "),
        ));
    }
    out.push_str(GITHUB_TAIL);
    out
}

const GITHUB_HEAD: &str = "  \
  workflow_dispatch:
    inputs:
      job:
        description: Job to run
        required: true
        type: choice
        options: [NAMES]

permissions:
  contents: read

# One run at a time: they share the cached database.
concurrency:
  group: lore
  cancel-in-progress: false

jobs:
  run:
    runs-on: ubuntu-latest
    # The image of deploy/docker; the checkout and the cache belong to root.
    container:
      image: ${{ vars.LORE_IMAGE }}
      options: --user 0
";

const GITHUB_JOB: &str = "    \
    timeout-minutes: MINUTES
    env:
      GITLAB_TOKEN: ${{ secrets.GITLAB_TOKEN }}
      LORE__DATABASE__PATH: ${{ github.workspace }}/lore-data/lore.db
      LORE__METRICS__TEXTFILE: ${{ github.workspace }}/lore.prom
      WHAT: ${{ github.event.schedule || inputs.job }}
    steps:
      - uses: actions/checkout@v4
      - uses: actions/cache/restore@v4
        with:
          path: lore-data
          # A cache entry is never changed: each run saves a new one and takes the newest.
          key: lore-database-${{ github.run_id }}-${{ github.run_attempt }}
          restore-keys: lore-database-
      - name: Run
        run: |
          mkdir -p lore-data
          case \"$WHAT\" in
";

const GITHUB_TAIL: &str = "            \
            *) echo \"no job for $WHAT\" >&2; exit 2 ;;
          esac
          lore \"$@\" --log-format json
      - uses: actions/cache/save@v4
        if: always()
        with:
          path: lore-data
          key: lore-database-${{ github.run_id }}-${{ github.run_attempt }}
      - uses: actions/upload-artifact@v4
        if: always()
        with:
          name: lore-metrics
          path: lore.prom
";

#!/usr/bin/env bash
# swe-argo, for those who know OpenHands' run_infer.sh: the same arguments in the same places.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: run_infer.sh MODEL_CONFIG [GIT_VERSION] [AGENT] [EVAL_LIMIT] [MAX_ITER] [NUM_WORKERS] [DATASET] [SPLIT]
                    [N_RUNS] [MODE] [FLAG ...]

  MODEL_CONFIG  group of config.toml, as llm.eval_gpt4, or a model, as openai/NAME
  GIT_VERSION   HEAD; another one is only noted: this does not check anything out
  AGENT         CodeActAgent (openhands), or any name of swe-argo run --agent   [CodeActAgent]
  EVAL_LIMIT    at most so many instances, in the dataset's order               [all]
  MAX_ITER      actions an instance                                             [100]
  NUM_WORKERS   units at a time                                                 [1]
  DATASET       a name, a hub id, a file                                        [princeton-nlp/SWE-bench_Lite]
  SPLIT                                                                         [test]
  N_RUNS        so many runs, each with an output.jsonl                         [1]
  MODE          swe
  FLAG ...      further flags of swe-argo run, which win over all above

An empty argument ('') is its default. Flags may stand in the place of the last arguments. The variables of OpenHands'
guide work (RUNTIME, docker by default; EVAL_OUTPUT_PATH, EVAL_MAX_RETRIES, USE_HINT_TEXT, ITERATIVE_EVAL_MODE, SKIP_IDS,
SKIP_RUNS, EXP_NAME, ...): see README.md beside this script. The same call again goes on with what is missing.

Each run leaves EVAL_OUTPUT_PATH/DATASET-SPLIT/AGENT/RUN/output.jsonl, graded as well: what eval_infer.sh did is done.
Patches of another output.jsonl are graded by: swe-argo run --dataset DATASET --predictions output.jsonl
TEXT
}

die() {
  echo "run_infer.sh: $*" >&2
  exit 64
}

# A checkout's own environment, else that of the package this script came with, else whatever is on the path.
find_swe_argo() {
  local here
  here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
  if [[ -n ${SWE_ARGO:-} ]]; then
    echo "$SWE_ARGO"
  elif [[ -x $here/../../.venv/bin/swe-argo ]]; then
    echo "$here/../../.venv/bin/swe-argo"
  elif [[ -x $here/../../../../../bin/swe-argo ]]; then # ENV/lib/python3.11/site-packages/templates/runs
    echo "$here/../../../../../bin/swe-argo"
  else
    command -v swe-argo || die "there is no swe-argo here: make run once in its checkout, or name it by SWE_ARGO"
  fi
}

slug() {
  tr '[:upper:]' '[:lower:]' <<<"$1" | sed -E 's/[^a-z0-9]+/-/g; s/^-+//; s/-+$//'
}

# Words before the first flag are positional; '' stands for a default.
words=()
while (($#)) && [[ $1 != -* ]]; do
  words+=("$1")
  shift
done
for flag in "$@"; do
  if [[ $flag == -h || $flag == --help ]]; then
    usage
    exit 0
  fi
done
((${#words[@]} <= 10)) || die "'${words[10]}' is one argument too many; -h says which there are"
model_config=${words[0]:-}
git_version=${words[1]:-HEAD}
agent=${words[2]:-CodeActAgent}
eval_limit=${words[3]:-}
max_iter=${words[4]:-100}
num_workers=${words[5]:-1}
dataset=${words[6]:-princeton-nlp/SWE-bench_Lite}
split=${words[7]:-test}
n_runs=${words[8]:-1}
mode=${words[9]:-swe}

[[ -n $model_config ]] || die "MODEL_CONFIG is missing, as llm.eval_gpt4; -h says more"
[[ $n_runs =~ ^[1-9][0-9]*$ ]] || die "N_RUNS is '$n_runs', not a number"
[[ $mode == swe ]] || die "MODE is '$mode': only swe exists here"
[[ $git_version == HEAD ]] || echo "note: GIT_VERSION $git_version is not checked out; swe-argo runs as it is" >&2

swe_argo=$(find_swe_argo)
export RUNTIME=${RUNTIME:-docker}
store=${EVAL_OUTPUT_PATH:-results}
named=
before=
for flag in "$@"; do # those that say where the results are must be known here, too
  case $before in
    --store | --output-dir | --output_dir | --traj_dir | -o) store=$flag ;;
    --run-id | --run_id | --exp_name) named=$flag ;;
  esac
  case $flag in
    --store=* | --output-dir=* | --output_dir=* | --traj_dir=*) store=${flag#*=} ;;
    --run-id=* | --run_id=* | --exp_name=*) named=${flag#*=} ;;
  esac
  before=$flag
done
outputs=$store
[[ $store != *://* ]] || outputs=results
flags=(--agent "$agent" --max-iterations "$max_iter" --num-workers "$num_workers" --dataset "$dataset" --split "$split")
case $model_config in
  llm | llm.*) flags+=(--llm-config "$model_config") ;;
  *) flags+=(--model "$model_config") ;;
esac
[[ -z $eval_limit ]] || flags+=(--eval-limit "$eval_limit")
what="$agent-$model_config-$(basename "$dataset")-$split-maxiter-$max_iter${eval_limit:+-k-$eval_limit}${EXP_NAME:+-$EXP_NAME}"
sum=$(cksum <<<"$what $dataset" | cut -d' ' -f1)

skipped=${SKIP_RUNS:-}
worst=0
for ((number = 1; number <= n_runs; number++)); do
  if [[ " ${skipped//,/ } " == *" $number "* ]]; then
    continue
  fi
  # A run's name has 63 letters at most; the sum keeps apart what was cut.
  run=${named:-$(slug "$what" | cut -c1-44)-$sum}
  run=$(slug "$run-r$number")
  code=0
  "$swe_argo" run "${flags[@]}" --store "$store" "$@" --run-id "$run" || code=$?
  case $code in
    0 | 3 | 4 | 130) ;;
    *) exit "$code" ;;
  esac
  folder=$outputs/${dataset//\//__}-$split/$agent/$run
  exported=0
  "$swe_argo" export "$run" --store "$store" --format openhands --out "$folder" --force || exported=$?
  ((code)) || code=$exported # a run that came to nothing has nothing to export
  ((exported)) || echo "$folder/output.jsonl"
  ((code <= worst)) || worst=$code
  ((code != 130)) || break
done
exit "$worst"

#!/usr/bin/env bash
# Tries what docs/verl.md describes, from nothing to one step of GRPO: the data, a sandbox and its verdict, the configuration,
# and where there are GPUs two issues of the training set.
#
#   run_swebench_smoke.sh [DATASET] [FLAG...]    DATASET and flags are those of `swe-argo export --format verl`, e.g.
#                                                `mini --backend local`; default: the sample of 10 and 2 in Docker
#
# Read from the environment:
#   SWE_ARGO_VERL_DATA    folder of the data; what is there already is taken (default: ~/data/swebench_mini)
#   SWE_ARGO_VERL_LOGS    folder of the logs (default: ~/verl_swebench_logs); here they are in smoke/
#   SWE_ARGO_VERL_MODEL   model of the step (default: Qwen/Qwen3-0.6B)
#   GPUS                  how many to use (default: those that nvidia-smi lists); 0: stop before the step
#   INSTANCE              whose sandbox is tried (default: the first that was exported)
#   PYTHON                one that has verl and swe-argo (default: python3)
set -euo pipefail

SWE_ARGO_VERL="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SWE_ARGO_VERL_DATA="${SWE_ARGO_VERL_DATA:-$HOME/data/swebench_mini}"
SWE_ARGO_VERL_LOGS="${SWE_ARGO_VERL_LOGS:-$HOME/verl_swebench_logs}"
export SWE_ARGO_VERL SWE_ARGO_VERL_DATA SWE_ARGO_VERL_LOGS
PYTHON="${PYTHON:-python3}"
LOGS="$SWE_ARGO_VERL_LOGS/smoke"

say() {
  echo "smoke: $*"
}

die() { # die CODE WORD...
  echo "smoke: ${*:2}" >&2
  exit "$1"
}

# Runs a command with its output in LOGS/NAME.log; what it said last is why it failed.
step() { # step NAME WHAT COMMAND...
  local log="$LOGS/$1.log" code=0
  "${@:3}" >"$log" 2>&1 || code=$?
  [ "$code" = 0 ] || die "$code" "$2: $(grep -v '^[[:space:]]*$' "$log" | tail -n 1) (all of it: $log)"
}

has() { # has MODULE
  "$PYTHON" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)' "$1" 2>/dev/null
}

check() {
  command -v "$PYTHON" >/dev/null || die 64 "there is no $PYTHON: name one that has verl and swe-argo as PYTHON"
  has swe_argo.workflows.verl || die 64 "$PYTHON has no swe-argo: pip install swe-argo there, or name another PYTHON"
  has verl || die 64 "$PYTHON has no verl: use the image of images/build verl, pip install verl==0.9.1, or name another PYTHON"
  mkdir -p "$LOGS" 2>/dev/null || die 64 "$LOGS cannot be made: name another folder as SWE_ARGO_VERL_LOGS"
}

data() {
  if [ -e "$SWE_ARGO_VERL_DATA/train.parquet" ]; then
    say "data: taken from $SWE_ARGO_VERL_DATA, as it is there already"
    return
  fi
  step data "no data" "$PYTHON" -m swe_argo.workflows.cli.main export --format verl "$@" --out "$SWE_ARGO_VERL_DATA"
  say "data: $(tail -n 1 "$LOGS/data.log")"
}

sandbox() {
  local store="$SWE_ARGO_VERL_DATA/store"
  step sandbox "a sandbox or its verdict" "$PYTHON" -m swe_argo.workflows.rollouts.regression "$store" ${INSTANCE:+"$INSTANCE"}
  sed 's/^/smoke: sandbox: /' "$LOGS/sandbox.log"
}

# Sets WORDS: one step that is as small as GPUS allow. Its batch has to be a multiple of them.
words() { # words GPUS
  local rollouts=$(($1 > 2 ? $1 : 2))
  WORDS=("$PYTHON" -m verl.trainer.main_ppo --config-path "$SWE_ARGO_VERL" --config-name grpo
    trainer.experiment_name=smoke trainer.total_training_steps=1 trainer.val_before_train=false trainer.test_freq=-1
    trainer.save_freq=-1 trainer.resume_mode=disable "trainer.n_gpus_per_node=$1"
    "actor_rollout_ref.model.path=${SWE_ARGO_VERL_MODEL:-Qwen/Qwen3-0.6B}"
    data.train_batch_size=2 actor_rollout_ref.actor.ppo_mini_batch_size=2 "actor_rollout_ref.rollout.n=$rollouts"
    actor_rollout_ref.rollout.agent.num_workers=2 actor_rollout_ref.rollout.multi_turn.max_assistant_turns=5
    actor_rollout_ref.rollout.multi_turn.max_user_turns=5 data.max_response_length=8192
    actor_rollout_ref.rollout.max_model_len=16384 actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384)
  # Where no instance was held out, there is nothing to validate on, and verl wants a file.
  [ -e "$SWE_ARGO_VERL_DATA/val.parquet" ] || WORDS+=("data.val_files=$SWE_ARGO_VERL_DATA/train.parquet")
}

train() {
  local gpus="${GPUS:-}"
  [ -n "$gpus" ] || gpus="$(nvidia-smi --list-gpus 2>/dev/null | wc -l || true)"
  words "$((gpus > 0 ? gpus : 1))"
  step configuration "the configuration" "${WORDS[@]}" --cfg job --resolve
  say "configuration: composed, in $LOGS/configuration.log"
  if [ "$gpus" = 0 ]; then
    say "no step of GRPO: there is no GPU (${GPUS:+GPUS=}${GPUS:-nvidia-smi lists none}); all before it is well"
    return
  fi
  say "grpo: one step on $gpus GPUs, in $LOGS/grpo.log"
  step grpo "the step of GRPO" "${WORDS[@]}"
  { grep -oE 'step:[0-9]+ - .*' "$LOGS/grpo.log" || true; } | tail -n 1 | sed 's/^/smoke: grpo: /' # Ray's prefix is cut
  say "all is well"
}

check
data "$@"
sandbox
train

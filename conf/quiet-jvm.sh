# Leaves out "Using incubator modules: jdk.incubator.vector": the first line of each JVM that Spark starts, about an option of Spark's own. What
# comes after it passes through unchanged. Read by spark-env.sh, and by the bash that starts Spark for a Python program, as its BASH_ENV.
unset BASH_ENV
set +o posix
exec 2> >(
  trap '' INT TERM HUP
  while IFS= read -r line; do
    case $line in "WARNING: Using incubator modules: "*) break ;; esac
    printf '%s\n' "$line"
  done >&2
  exec cat >&2
)

# Read by spark-submit if SPARK_CONF_DIR is this folder. How the driver's JVM gets memory, and its Python workers in local mode; the reason is in
# spark-defaults.conf, "memory of processes".
export MALLOC_ARENA_MAX="${MALLOC_ARENA_MAX:-1}"
export MALLOC_MMAP_THRESHOLD_="${MALLOC_MMAP_THRESHOLD_:-1073741824}"
export MALLOC_TOP_PAD_="${MALLOC_TOP_PAD_:-67108864}"
export MALLOC_TRIM_THRESHOLD_="${MALLOC_TRIM_THRESHOLD_:-1073741824}"

[ -n "${WHEEL_UDF_DEBUG:-}" ] || . "$(dirname "${BASH_SOURCE[0]}")/quiet-jvm.sh"

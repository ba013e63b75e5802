package e2e

import (
	"encoding/json"
	"strings"
)

// pair is a field and what it is given.
type pair struct {
	key   string
	value any
}

// strs are tried wherever there is a string.
var strs = []any{
	"", "x", "Upper.Case_1", " padded ", "a=b", "-", "..", "../up", "/abs/path", "a/../b", "..hidden", "$(X)",
	strings.Repeat("a", 16), strings.Repeat("a", 64), strings.Repeat("a", 254),
}

// numbers are tried wherever there is a number.
var numbers = []any{
	json.Number("0"), json.Number("1"), json.Number("2"), json.Number("-1"), json.Number("31"), json.Number("512"),
	json.Number("65535"),
	json.Number("65536"), json.Number("2147483647"), json.Number("2147483648"), json.Number("9223372036854775807"),
	json.Number("1.5"),
}

// quantities are tried wherever there is an amount of something.
var quantities = []any{
	"0", "1", "-1", "1m", "1u", "1500m", "100500u", "1Ki", "1Mi", "3Mi", "2Gi", "1k", "1.5Gi", "1e3", "1E", "16Ei",
	"abc", "1 Gi", "+2", "0.0001",
}

// values are tried in fields of a name.
var values = map[string][]any{
	"restartPolicy":            {"Always", "OnFailure", "Never", "RestartContainer", "NotRequired", "always"},
	"operator":                 {"In", "NotIn", "Exists", "DoesNotExist", "Equal", "Lt", "Gt"},
	"action":                   {"Restart", "RestartAllContainers", "Terminate"},
	"protocol":                 {"TCP", "UDP", "SCTP", "tcp"},
	"scheme":                   {"HTTP", "HTTPS", "http"},
	"effect":                   {"NoSchedule", "PreferNoSchedule", "NoExecute"},
	"dnsPolicy":                {"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"},
	"mountPropagation":         {"None", "HostToContainer", "Bidirectional"},
	"recursiveReadOnly":        {"Disabled", "Enabled", "IfPossible"},
	"imagePullPolicy":          {"Always", "IfNotPresent", "Never"},
	"pullPolicy":               {"Always", "IfNotPresent", "Never"},
	"terminationMessagePolicy": {"File", "FallbackToLogsOnError"},
	"procMount":                {"Default", "Unmasked"},
	"fsGroupChangePolicy":      {"Always", "OnRootMismatch"},
	"supplementalGroupsPolicy": {"Merge", "Strict"},
	"seLinuxChangePolicy":      {"Recursive", "MountOption"},
	"preemptionPolicy":         {"Never", "PreemptLowerPriority"},
	"stopSignal":               {"SIGTERM", "SIGKILL", "SIGRTMIN+3", "SIGRTMIN+16", "SIGRTMAX", "TERM"},
	"medium":                   {"Memory", "HugePages", "HugePages-2Mi", "HugePages-x"},
	"resourceName":             {"cpu", "memory", "ephemeral-storage"},
	"type": {
		"", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket", "CharDevice", "BlockDevice",
		"Localhost", "RuntimeDefault", "Unconfined",
	},
	"image": {
		"a:latest", "a:", "a@sha256:abc",
		"a:latest@sha256:0000000000000000000000000000000000000000000000000000000000000000",
		"localhost:5000/a", "A B", "Registry/a:1", "a:" + strings.Repeat("b", 129), " ",
	},
	"reference": {"a:latest", "a@sha256:abc", "A B"},
	"fieldPath": {
		"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations",
		"spec.nodeName",
		"spec.serviceAccountName", "spec.restartPolicy", "spec.host", "status.hostIP", "status.hostIPs", "status.podIP",
		"status.podIPs", "status.phase",
		"metadata.labels['a']", "metadata.labels['']", "metadata.labels['A_b']", "metadata.labels['-']",
		"metadata.labels['a/b/c']", "metadata.annotations['A']",
		"metadata.annotations['x y']", "metadata.name['a']", "metadata.labels[a]", "metadata.labels['a'",
		"metadata.labels['a']x", "spec.foo['a']", "['a']",
	},
	"apiVersion": {"v1", "v2", "apps/v1"},
	"resource": {
		"limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", "requests.memory",
		"requests.ephemeral-storage",
		"limits.hugepages-2Mi", "requests.hugepages-", "limits.example.com/gpu", "cpu",
	},
	"ip":          {"::1", "fe80::1%eth0", "01.2.3.4", "::ffff:1.2.3.4", "1.2.3.4/8", "2001:DB8::1", "256.1.1.1"},
	"nameservers": {"::1", "01.2.3.4", "::ffff:1.2.3.4", "2001:DB8::1", "example.com"},
	"searches":    {".", "a.", "_a._b", "a..b", "A.b", "-a"},
	"hostnames":   {"a.b", "a_b", "*.a"},
	"hostIP":      {"::1", "256.1.1.1"},
	"port":        {"http", "no-such-port", "80", "-1", json.Number("80"), "Http", "a--b", "1234567890123456", "123"},
	"name": {
		"linux", "windows", "Linux", "main", "once", "side", "second", "scratch", "X-Header", "net.ipv4.ip_forward",
		"net/ipv4/ip_forward",
		"kernel.shmmax", "kernel.sem", "kernel.msgmax", "fs.mqueue.msg_max", "kernel/shmmax", "net.core.somaxconn",
		"kernel.shm_rmid_forced", "abc.",
	},
	"mountPath":                     {"/scratch", "/dev/disk", "relative", "/a:b", "/"},
	"devicePath":                    {"/login", "/dev/../x", "dev/x"},
	"localhostProfile":              {"a.json", "localhost/a", strings.Repeat("b", 4096)},
	"add":                           {"CAP_SYS_ADMIN", "SYS_ADMIN", "ALL"},
	"level":                         {"s0:c1,c2"},
	"runAsUser":                     {json.Number("4294967296")},
	"expirationSeconds":             {json.Number("599"), json.Number("600"), json.Number("4294967296"), json.Number("4294967297")},
	"terminationGracePeriodSeconds": {json.Number("4"), json.Number("5")},
	"annotations":                   {"localhost/../x", "unconfined", "runtime/default", "docker/default"},
	"finalizers":                    {"example.com/x", "x y"},
}

// additions are put into objects of a name, as fields that they may not have yet.
var additions = map[string][]pair{
	"metadata": {
		{"uid", "b5a5a2c6-8b5e-4d6f-9a0e-0a1b2c3d4e5f"}, {"uid", "../up"}, {"finalizers", []any{"example.com/keep"}}, {"finalizers", []any{"keep"}},
		{"generateName", "web-"}, {"labels", map[string]any{"a": "b"}}, {"annotations", map[string]any{"a": strings.Repeat("x", 300000)}},
		{"creationTimestamp", "2020-01-01T00:00:00Z"}, {"deletionTimestamp", "2020-01-01T00:00:00Z"}, {"deletionGracePeriodSeconds", 3},
	},
	"labels":       badLabels,
	"nodeSelector": badLabels,
	"annotations": {
		{"kubernetes.io/config.mirror", "x"}, {"UPPER/Case", "x"}, {"a/b/c", "x"}, {"", "x"}, {"-", "x"},
		{"scheduler.alpha.kubernetes.io/tolerations", `[{"operator":"Exists"}]`}, {"scheduler.alpha.kubernetes.io/tolerations", `[{"key":"a","operator":"Sometimes"}]`},
		{"scheduler.alpha.kubernetes.io/tolerations", `{`},
		{"controller.kubernetes.io/pod-deletion-cost", "x"}, {"controller.kubernetes.io/pod-deletion-cost", "+1"},
		{"container.apparmor.security.beta.kubernetes.io/main", "localhost/k8s-a"}, {"container.apparmor.security.beta.kubernetes.io/main", "unconfined"},
		{"container.apparmor.security.beta.kubernetes.io/main", "localhost/other"},
		{"container.apparmor.security.beta.kubernetes.io/nobody", "runtime/default"}, {"container.apparmor.security.beta.kubernetes.io/plain", "x"},
		{"container.seccomp.security.alpha.kubernetes.io/main", "localhost/profiles/a.json"}, {"container.seccomp.security.alpha.kubernetes.io/main", "localhost/b.json"},
		{"container.seccomp.security.alpha.kubernetes.io/powerful", "runtime/default"}, {"container.seccomp.security.alpha.kubernetes.io/nobody", "x"},
		{"seccomp.security.alpha.kubernetes.io/pod", "unconfined"}, {"seccomp.security.alpha.kubernetes.io/pod", "docker/default"},
	},
	"limits":   resources,
	"requests": resources,
	"overhead": resources,
	"spec": {
		{"schedulingGates", []any{map[string]any{"name": "example.com/wait"}}}, {"serviceAccount", "builder"}, {"serviceAccountName", "builder"},
		{"volumes", []any{map[string]any{"name": "v"}, map[string]any{"name": "v", "emptyDir": map[string]any{}, "hostPath": map[string]any{"path": "/x"}}}},
		{"nodeName", "elsewhere"}, {"schedulerName", "mine"},
	},
	"securityContext": {
		{"windowsOptions", map[string]any{"runAsUserName": "ContainerUser"}},
		{"sysctls", []any{map[string]any{"name": "net.core.somaxconn", "value": "1"}}}, {"sysctls", []any{map[string]any{"name": "kernel.shmmax"}}},
		{"runAsUser", json.Number("1")}, {"fsGroup", json.Number("1")}, {"privileged", true}, {"readOnlyRootFilesystem", false},
	},
	"containers": {
		{"volumeDevices", []any{map[string]any{"name": "disk", "devicePath": "/x"}, map[string]any{"name": "disk", "devicePath": "/x"}}},
		{"env", []any{map[string]any{"name": "F", "valueFrom": map[string]any{"fileKeyRef": map[string]any{"volumeName": "here", "path": "a/../b", "key": "K=1"}}}}},
	},
	"volumes": {
		{"emptyDir", map[string]any{"sizeLimit": "1Gi"}}, {"hostPath", map[string]any{"path": "/x"}}, {"projected", map[string]any{}},
		{"secret", map[string]any{"secretName": "a"}}, {"gitRepo", map[string]any{"repository": "a"}},
	},
	"livenessProbe":  {{"tcpSocket", map[string]any{"port": 1}}, {"terminationGracePeriodSeconds", 1}},
	"readinessProbe": {{"tcpSocket", map[string]any{"port": 1}}, {"terminationGracePeriodSeconds", 1}},
	"startupProbe":   {{"grpc", map[string]any{"port": 1}}, {"sleep", map[string]any{"seconds": 1}}},
	"preStop":        {{"sleep", map[string]any{"seconds": 0}}, {"sleep", map[string]any{"seconds": 1000}}, {"grpc", map[string]any{"port": 1}}},
	"valueFrom":      {{"fieldRef", map[string]any{"fieldPath": "metadata.name"}}, {"secretKeyRef", map[string]any{"key": "k"}}},
	"env":            {{"value", "both"}, {"valueFrom", map[string]any{}}},
	"envFrom":        {{"secretRef", map[string]any{"name": "two"}}},
	"volumeMounts":   {{"subPath", "a"}, {"subPathExpr", "$(POD)"}, {"readOnly", true}, {"mountPropagation", "Bidirectional"}},
	"items":          {{"resourceFieldRef", map[string]any{"containerName": "main", "resource": "limits.cpu"}}},
	"sources":        {{"secret", map[string]any{}}, {"serviceAccountToken", map[string]any{"path": "../x"}}},
	"resources":      {{"claims", []any{map[string]any{"name": "gpu"}}}, {"claims", []any{}}},
}

var badLabels = []pair{{"a b", "x"}, {"-", "x"}, {"", "x"}, {"a", "b c"}, {"a", ""}, {"a", strings.Repeat("x", 64)},
	{"example.com/a", "B.c_d"}, {"a/b/c", "x"}}

var resources = []pair{
	{"gpu", "1"}, {"example.com/half", "500m"}, {"example.com/two", "2"}, {"hugepages-3Mi", "6Mi"}, {"hugepages-", "1"}, {"hugepages-x", "1"}, {"hugepages-2Mi", "3Mi"},
	{"requests.example.com/x", "1"}, {"kubernetes.io/x", "1"}, {"storage", "1Gi"}, {"a/b/c", "1"}, {"pods", "3"}, {"", "1"}, {"UPPER", "1"},
	{"cpu", "100"}, {"memory", "1m"}, {"example.com/" + strings.Repeat("x", 60), "1"}, {"attachable-volumes-x", "1"},
}

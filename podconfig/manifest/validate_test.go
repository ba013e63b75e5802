package manifest_test

import (
	"strings"
	"testing"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestValidate varies a valid pod: each case adds lines to its spec or its container, and
// has the errors that result.
func TestValidate(t *testing.T) {
	t.Parallel()
	const c = "spec.containers[0]."
	for name, tc := range map[string]struct {
		meta, spec, container string
		want                  []string // beginnings of the errors; none means good
	}{
		"good": {},
		"good, with everything": {
			spec: `
  initContainers:
  - {name: once, image: a}
  - {name: side, image: a, restartPolicy: Always, startupProbe: {tcpSocket: {port: x}}}
  volumes: [{name: e, emptyDir: {sizeLimit: 1Gi}}, {name: h, hostPath: {path: /x, type: Directory}}]
  hostAliases: [{ip: 1.2.3.4, hostnames: [a.b]}]
  dnsPolicy: None
  dnsConfig: {nameservers: [1.1.1.1], searches: [a_b.c., .], options: [{name: ndots, value: "2"}]}
  tolerations: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 3}]
  securityContext: {runAsUser: 0, sysctls: [{name: net.ipv4.ip_forward, value: "1"}], seccompProfile: {type: RuntimeDefault}}
  hostname: a
  subdomain: b
  activeDeadlineSeconds: 1`,
			container: `
    ports: [{name: http, containerPort: 80, hostPort: 80}, {containerPort: 80, protocol: UDP}]
    env: [{name: "a b", value: x}, {name: C, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}, {name: D, valueFrom: {fieldRef: {fieldPath: "metadata.labels['x/y']"}}}]
    volumeMounts: [{name: e, mountPath: /e, subPath: a/b}, {name: h, mountPath: /h, readOnly: true, recursiveReadOnly: Enabled}]
    resources: {limits: {cpu: 1, memory: 1Gi, example.com/gpu: 2}, requests: {cpu: 100m}}
    livenessProbe: {exec: {command: [x]}}
    lifecycle: {preStop: {sleep: {seconds: 30}}}`,
		},
		"image name that does not parse": {container: "\n    imagePullPolicy: Never", want: nil},

		"pod name":       {meta: "name: Web_1", want: []string{`metadata.name: Invalid value: "Web_1-node": a lowercase RFC 1123 subdomain must`}},
		"namespace":      {meta: "namespace: a.b", want: []string{`metadata.namespace: Invalid value: "a.b"`}},
		"label":          {meta: "labels: {a: '!'}", want: []string{`metadata.labels: Invalid value: "!"`}},
		"mirror pod":     {meta: "annotations: {kubernetes.io/config.mirror: x}", want: []string{`metadata.annotations[kubernetes.io/config.mirror]: Forbidden`}},
		"container name": {spec: "\n  - {name: A.b, image: x}", want: []string{`spec.containers[1].name: Invalid value: "A.b": a lowercase RFC 1123 label must`}},
		"no name":        {spec: "\n  - {image: x}", want: []string{`spec.containers[1].name: Required value`}},
		"same name":      {spec: "\n  - {name: main, image: x}", want: []string{`spec.containers[1].name: Duplicate value: "main"`}},
		"same name as init": {spec: "\n  initContainers: [{name: main, image: x}]",
			want: []string{`spec.initContainers[0].name: Duplicate value: "main"`}},
		"no image":              {spec: "\n  - {name: x}", want: []string{`spec.containers[1].image: Required value`}},
		"padded image":          {spec: "\n  - {name: x, image: ' a'}", want: []string{`spec.containers[1].image: Invalid value: " a": must not have leading or trailing whitespace`}},
		"pull policy":           {container: "\n    imagePullPolicy: Sometimes", want: []string{c + `imagePullPolicy: Unsupported value: "Sometimes": supported values:`}},
		"ephemeral":             {spec: "\n  ephemeralContainers: [{name: e, image: x}]", want: []string{`spec.ephemeralContainers: Forbidden: cannot be set on create`}},
		"restart policy":        {spec: "\n  restartPolicy: Perhaps", want: []string{`spec.restartPolicy: Unsupported value: "Perhaps"`}},
		"negative grace period": {spec: "\n  terminationGracePeriodSeconds: -1"},
		"deadline":              {spec: "\n  activeDeadlineSeconds: 0", want: []string{`spec.activeDeadlineSeconds: Invalid value: 0`}},
		"scheduling gates":      {spec: "\n  schedulingGates: [{name: x}]", want: []string{`spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared`}},

		"port range":     {container: "\n    ports: [{containerPort: 70000}]", want: []string{c + `ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive`}},
		"no port":        {container: "\n    ports: [{name: a}]", want: []string{c + `ports[0].containerPort: Required value`}},
		"port name":      {container: "\n    ports: [{name: '-', containerPort: 1}]", want: []string{c + `ports[0].name: Invalid value: "-"`, c + `ports[0].name: Invalid value`}},
		"same port name": {container: "\n    ports: [{name: a, containerPort: 1}, {name: a, containerPort: 2}]", want: []string{c + `ports[1].name: Duplicate value: "a"`}},
		"protocol":       {container: "\n    ports: [{containerPort: 1, protocol: tcp}]", want: []string{c + `ports[0].protocol: Unsupported value: "tcp"`}},
		"same host port": {container: "\n    ports: [{containerPort: 1, hostPort: 5}, {containerPort: 2, hostPort: 5}]", want: []string{c + `ports[1].hostPort: Duplicate value: "TCP//5"`}},
		"host port with host network": {spec: "\n  hostNetwork: true", container: "\n    ports: [{containerPort: 1, hostPort: 5}]",
			want: []string{c +
				"ports[0].hostPort: Invalid value: 5: must match `containerPort` when `hostNetwork` is true"}},

		"env name":        {container: "\n    env: [{value: x}]", want: []string{c + `env[0].name: Required value`}},
		"env equals sign": {container: "\n    env: [{name: a=b}]", want: []string{c + `env[0].name: Invalid value: "a=b"`}},
		"env two values":  {container: "\n    env: [{name: a, value: b, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]", want: []string{c + "env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty"}},
		"env no source":   {container: "\n    env: [{name: a, valueFrom: {}}]", want: []string{c + "env[0].valueFrom: Invalid value: \"\": must specify one of"}},
		"env field":       {container: "\n    env: [{name: a, valueFrom: {fieldRef: {fieldPath: spec.foo}}}, {name: b, valueFrom: {fieldRef: {fieldPath: status.phase}}}, {name: c, valueFrom: {fieldRef: {fieldPath: spec.host}}}]", want: []string{c + `env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.foo": no such field`, c + `env[1].valueFrom.fieldRef.fieldPath: Unsupported value: "status.phase"`}},
		"env resource":    {container: "\n    env: [{name: a, valueFrom: {resourceFieldRef: {resource: limits.x}}}]", want: []string{c + `env[0].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.x"`}},
		"env divisor":     {container: "\n    env: [{name: a, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 2}}}]", want: []string{c + `env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "2"`}},
		"env file":        {container: "\n    env: [{name: a, valueFrom: {fileKeyRef: {volumeName: v, path: x, key: K}}}]", want: []string{c + `env[0].valueFrom.fileKeyRef.volumeName: Not found: "v"`}},

		"volume name":      {spec: "\n  volumes: [{name: A, emptyDir: {}}]", want: []string{`spec.volumes[0].name: Invalid value: "A"`}},
		"same volume name": {spec: "\n  volumes: [{name: a, emptyDir: {}}, {name: a, emptyDir: {}}]", want: []string{`spec.volumes[1].name: Duplicate value: "a"`}},
		"two types":        {spec: "\n  volumes: [{name: a, emptyDir: {}, hostPath: {path: /x}}]", want: []string{`spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type`}},
		"host path":        {spec: "\n  volumes: [{name: a, hostPath: {path: /x/../y}}, {name: b, hostPath: {path: ''}}, {name: c, hostPath: {path: /x, type: Dir}}]", want: []string{`spec.volumes[0].hostPath.path: Invalid value: "/x/../y": must not contain '..'`, `spec.volumes[1].hostPath.path: Required value`, `spec.volumes[2].hostPath.type: Unsupported value: "Dir"`}},
		"size limit":       {spec: "\n  volumes: [{name: a, emptyDir: {sizeLimit: -1}}]", want: []string{`spec.volumes[0].emptyDir.sizeLimit: Forbidden`}},
		"mode of a volume": {spec: "\n  volumes: [{name: a, emptyDir: {mode: 01777}}, {name: b, emptyDir: {mode: 02000}}]",
			want: []string{`spec.volumes[1].emptyDir.mode: Invalid value: 1024: must be a number between 0 and 01777`}},
		"owners of files": {spec: "\n  volumes: [{name: a, projected: {defaultUser: -1, sources: [{downwardAPI: {items: [{path: x, user: -1, fieldRef: {fieldPath: metadata.name}}]}}]}}, {name: b, downwardAPI: {defaultUser: -1}}]",
			want: []string{`spec.volumes[0].projected.defaultUser: Invalid value: -1`,
				`spec.volumes[0].projected.sources[0].downwardAPI.user: Invalid value: -1`,
				`spec.volumes[1].downwardAPI.defaultUser: Invalid value: -1`}},
		"downward file": {spec: "\n  volumes: [{name: a, downwardAPI: {items: [{path: ../x, fieldRef: {fieldPath: metadata.foo}}]}}]", want: []string{`spec.volumes[0].downwardAPI.path: Invalid value: "../x": must not contain '..'`, `spec.volumes[0].downwardAPI.fieldRef.fieldPath: Invalid value: "metadata.foo"`}},
		"two sources":   {spec: "\n  volumes: [{name: a, projected: {sources: [{downwardAPI: {items: [{path: x, fieldRef: {fieldPath: metadata.name}}]}}, {downwardAPI: {items: [{path: x, fieldRef: {fieldPath: metadata.uid}}]}}]}}]", want: []string{`spec.volumes[0].projected: Invalid value: "x": conflicting duplicate paths`}},
		"bad volume":    {spec: "\n  volumes: [{name: v, emptyDir: {sizeLimit: -1}}]", container: "\n    volumeMounts: [{name: v, mountPath: /x}]", want: []string{`spec.volumes[0].emptyDir.sizeLimit: Forbidden`, c + `volumeMounts[0].name: Not found: "v"`}},
		"devices": {spec: "\n  volumes: [{name: v}]", container: "\n    volumeMounts: [{name: v, mountPath: /x}]\n    volumeDevices: [{name: v, devicePath: /x}, {name: v, devicePath: ../y}]",
			want: []string{
				c + `volumeMounts[0].name: Invalid value: "v": must not already exist in volumeDevices`, c +
					`volumeMounts[0].mountPath: Invalid value: "/x": must not already exist as a path in volumeDevices`,
				c + `volumeDevices[0].name: Invalid value: "v": can only use volume source type of`,
				c + `volumeDevices[0].name: Invalid value: "v": must not already exist in volumeMounts`,
				c +
					`volumeDevices[0].devicePath: Invalid value: "/x": must not already exist as a path in volumeMounts`, c + `volumeDevices[1].name: Invalid value: "v": must be unique`,
				c + `volumeDevices[1].name: Invalid value: "v": can only use`,
				c + `volumeDevices[1].devicePath: Invalid value: "../y": must not contain '..'`,
				c + `volumeDevices[1].name: Invalid value: "v": must not already`,
			}},
		"unknown mount": {container: "\n    volumeMounts: [{name: v, mountPath: /x}]", want: []string{c + `volumeMounts[0].name: Not found: "v"`}},
		"mount path": {spec: "\n  volumes: [{name: v}]", container: "\n    volumeMounts: [{name: v, mountPath: /x}, {name: v, mountPath: /x}, {name: v}]",
			want: []string{c + `volumeMounts[1].mountPath: Invalid value: "/x": must be unique`,
				c + `volumeMounts[2].mountPath: Required value`}},
		"sub-path": {spec: "\n  volumes: [{name: v}]", container: "\n    volumeMounts: [{name: v, mountPath: /x, subPath: ../y}, {name: v, mountPath: /z, subPathExpr: /a}, {name: v, mountPath: /w, subPathExpr: b, subPath: a}]",
			want: []string{c + `volumeMounts.subPath: Invalid value: "../y": must not contain '..'`,
				c + `volumeMounts.subPathExpr: Invalid value: "/a": must be a relative path`, c +
					`volumeMounts[2].subPathExpr: Invalid value: "b": subPathExpr and subPath are mutually exclusive`}},
		"mount options": {spec: "\n  volumes: [{name: v}, {name: i, image: {reference: a}}]", container: "\n    volumeMounts: [{name: v, mountPath: /x, bindMountOptions: [noexec, noexec, exec]}, {name: i, mountPath: /i, bindMountOptions: [nodev]}]",
			want: []string{c + `volumeMounts[0].bindMountOptions[1]: Duplicate value: "noexec"`,
				c + `volumeMounts[0].bindMountOptions[2]: Unsupported value: "exec"`,
				c + `volumeMounts[1].bindMountOptions: Invalid value`}},
		"propagation": {spec: "\n  volumes: [{name: v}]", container: "\n    volumeMounts: [{name: v, mountPath: /x, mountPropagation: Bidirectional}]",
			want: []string{c + `volumeMounts.mountPropagation: Forbidden`}},

		"no handler":         {container: "\n    livenessProbe: {}", want: []string{c + `livenessProbe: Required value: must specify a handler type`}},
		"two handlers":       {container: "\n    readinessProbe: {exec: {command: [x]}, tcpSocket: {port: 1}}", want: []string{c + `readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type`}},
		"negative period":    {container: "\n    readinessProbe: {exec: {command: [x]}, periodSeconds: -1}", want: []string{c + `readinessProbe.periodSeconds: Invalid value: -1`}},
		"liveness threshold": {container: "\n    livenessProbe: {exec: {command: [x]}, successThreshold: 2}", want: []string{c + `livenessProbe.successThreshold: Invalid value: 2: must be 1`}},
		"probe port":         {container: "\n    livenessProbe: {httpGet: {port: 0}}", want: []string{c + `livenessProbe.httpGet.port: Invalid value: 0`}},
		"protocols of probes": {container: "\n    livenessProbe: {httpGet: {port: 1, protocol: HTTP2, host: a}}\n    readinessProbe: {httpGet: {port: 1, protocol: HTTP2, scheme: HTTPS}}\n    startupProbe: {grpc: {port: 1, mode: mTLS}}\n    lifecycle: {preStop: {httpGet: {port: 1, protocol: HTTP3}}}",
			want: []string{c + `livenessProbe.httpGet.host: Invalid value: "a": must be empty`,
				c + `startupProbe.grpc.mode: Unsupported value: "mTLS"`,
				c + `readinessProbe.httpGet.protocol: Invalid value: "HTTP2": is only supported with HTTP`,
				c + `lifecycle.preStop.httpGet.protocol: Unsupported value: "HTTP3"`}},
		"probe of init":     {spec: "\n  initContainers: [{name: i, image: a, livenessProbe: {exec: {command: [x]}}}]", want: []string{`spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always`}},
		"stop signal":       {container: "\n    lifecycle: {stopSignal: SIGTERM}", want: []string{c + `lifecycle.stopSignal: Forbidden`}},
		"wrong stop signal": {spec: "\n  os: {name: linux}", container: "\n    lifecycle: {stopSignal: SIGRTMIN+16}", want: []string{c + `lifecycle.stopSignal: Unsupported value: "SIGRTMIN+16"`}},
		"sleep":             {container: "\n    lifecycle: {preStop: {sleep: {seconds: 31}}}", want: []string{c + `lifecycle.preStop.sleep: Invalid value: 31`}},
		"restart rules":     {container: "\n    restartPolicyRules: [{action: Restart}]", want: []string{c + `restartPolicy: Required value`}},
		"restart rule":      {container: "\n    restartPolicy: Never\n    restartPolicyRules: [{action: Restart}]", want: []string{c + `restartPolicyRules[0].exitCodes: Required value`}},

		"resize policy": {spec: "\n  initContainers: [{name: i, image: a, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]",
			want: []string{`spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer"`}},
		"overhead":          {spec: "\n  overhead: {gpu: 1}", want: []string{`spec.overhead.limits[gpu]: Invalid value: "gpu"`}},
		"pod resource":      {spec: "\n  resources: {limits: {a.b/c: 1}}", want: []string{`spec.resources.limits[a.b/c]: Unsupported value`}},
		"preemption policy": {spec: "\n  preemptionPolicy: Sometimes", want: []string{`spec.preemptionPolicy: Unsupported value: "Sometimes"`}},
		"negative resource": {container: "\n    resources: {requests: {cpu: -1}}", want: []string{c + `resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0`}},
		"request over limit": {container: "\n    resources: {limits: {memory: 1Mi}, requests: {memory: 2Mi}}",
			want: []string{c +
				`resources.requests: Invalid value: "2Mi": must be less than or equal to memory limit of 1Mi`}},
		"unknown resource": {container: "\n    resources: {limits: {gpu: 1}}", want: []string{c + `resources.limits[gpu]: Invalid value: "gpu": must be a standard resource`, c + `resources.requests[gpu]: Invalid value`}},
		"half a device":    {container: "\n    resources: {limits: {a.b/c: 500m}}", want: []string{c + `resources.limits[a.b/c]: Invalid value: "500m": must be an integer`, c + `resources.requests[a.b/c]`}},
		"huge pages alone": {container: "\n    resources: {limits: {hugepages-2Mi: 2Mi}}", want: []string{c + `resources: Forbidden: HugePages require cpu or memory`}},
		"pod too small":    {spec: "\n  resources: {limits: {cpu: 1}, requests: {cpu: 1}}", container: "\n    resources: {requests: {cpu: 2}}", want: []string{`spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 2`}},

		"user":             {spec: "\n  securityContext: {runAsUser: -1}", want: []string{`spec.securityContext.runAsUser: Invalid value: -1`}},
		"sysctl":           {spec: "\n  securityContext: {sysctls: [{name: A}]}", want: []string{`spec.securityContext.sysctls[0].name: Invalid value: "A"`}},
		"sysctl of host":   {spec: "\n  hostNetwork: true\n  securityContext: {sysctls: [{name: net.x, value: a}]}", want: []string{`spec.securityContext.sysctls[0].name: Invalid value: "net.x": may not be specified when 'hostNetwork' is true`}},
		"seccomp":          {container: "\n    securityContext: {seccompProfile: {type: Localhost}}", want: []string{c + `securityContext.seccompProfile.localhostProfile: Required value`}},
		"escalation":       {container: "\n    securityContext: {privileged: true, allowPrivilegeEscalation: false}", want: []string{c + "securityContext: Invalid value: cannot set `allowPrivilegeEscalation` to false"}},
		"shared processes": {spec: "\n  hostPID: true\n  shareProcessNamespace: true", want: []string{`spec.shareProcessNamespace: Invalid value: true`}},
		"users of the host": {spec: "\n  hostUsers: false\n  hostIPC: true", container: "\n    volumeDevices: [{name: v, devicePath: /x}]",
			want: []string{c + `volumeDevices[0].name: Not found: "v"`, `spec.HostIPC: Forbidden`, c +
				`volumeDevices: Forbidden`}},
		"SELinux": {spec: "\n  securityContext: {seLinuxChangePolicy: Mount}", want: []string{`spec.securityContext.seLinuxChangePolicy: Unsupported value: "Mount"`}},
		"linux":   {spec: "\n  os: {name: linux}\n  securityContext: {windowsOptions: {}}", container: "\n    lifecycle: {stopSignal: SIGRTMAX-14}", want: []string{`spec.securityContext.windowsOptions: Forbidden: cannot be set for a linux pod`}},
		"windows": {spec: "\n  os: {name: windows}\n  hostPID: true\n  resources: {}\n  securityContext: {runAsUser: 1}", container: "\n    securityContext: {privileged: false}\n    lifecycle: {stopSignal: SIGINT}",
			want: []string{c + `lifecycle.stopSignal: Unsupported value: "SIGINT"`, `spec.resources: Forbidden`,
				`spec.hostPID: Forbidden`, `spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod`,
				c + `securityContext.privileged: Forbidden`}},
		"another system": {spec: "\n  os: {name: plan9}", want: []string{`spec.os: Unsupported value: "plan9"`}},
		"no system":      {spec: "\n  os: {}", want: []string{`spec.os.name: Required value`}},
		"DNS policy":     {spec: "\n  dnsPolicy: None", want: []string{`spec.dnsConfig: Required value`}},
		"name server":    {spec: "\n  dnsConfig: {nameservers: [a]}", want: []string{`spec.dnsConfig.nameservers[0]: Invalid value: "a"`}},
		"hostname":       {spec: "\n  hostname: a.b", want: []string{`spec.hostname: Invalid value: "a.b"`}},
		"host alias":     {spec: "\n  hostAliases: [{ip: x, hostnames: [_]}]", want: []string{`spec.hostAliases[0].ip: Invalid value: "x"`, `spec.hostAliases[0].hostnames[0]: Invalid value: "_"`}},
		"toleration":     {spec: "\n  tolerations: [{operator: Exists, value: x}, {}]", want: []string{`spec.tolerations[0].operator: Invalid value: "x"`, `spec.tolerations[1].operator: Invalid value: ""`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			meta := "name: web"
			if tc.meta != "" {
				meta = tc.meta
				if !strings.Contains(meta, "name:") || strings.HasPrefix(meta, "namespace") {
					meta = "name: web\n  " + meta
				}
			}
			in := "apiVersion: v1\nkind: Pod\nmetadata:\n  " + meta +
				"\nspec:\n  containers:\n  - name: main\n    image: busybox" + tc.container + tc.spec + "\n"
			_, err := manifest.Load([]byte(in), loadOptions())
			if len(tc.want) == 0 {
				require.NoError(t, err)
				return
			}
			var invalid *manifest.InvalidError
			require.ErrorAs(t, err, &invalid, in)
			var got []string
			for _, e := range invalid.Errs {
				got = append(got, e.Error())
			}
			require.Len(t, got, len(tc.want), strings.Join(got, "\n"))
			for i, want := range tc.want {
				assert.Truef(t, strings.HasPrefix(got[i], want), "want %s\ngot  %s", want, got[i])
			}
		})
	}
}

func TestInvalidErrorNamesPodAndPlace(t *testing.T) {
	t.Parallel()
	_, err := manifest.Load([]byte(minimal+"---\n"+strings.Replace(minimal, "name: main", "name: Main", 1)),
		loadOptions())
	require.ErrorContains(t, err,
		`document 2 (line 9): pod default/web-node is invalid: spec.containers[0].name: Invalid value: "Main"`)
}

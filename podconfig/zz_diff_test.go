package podconfig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"sort"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const rich = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {a: b}, annotations: {x/y: z}}
spec:
  restartPolicy: Always
  hostNetwork: false
  hostPID: false
  hostIPC: false
  hostUsers: true
  shareProcessNamespace: false
  hostname: a
  subdomain: b
  setHostnameAsFQDN: false
  hostnameOverride: foo.bar
  dnsPolicy: ClusterFirst
  dnsConfig: {nameservers: [1.1.1.1], searches: [a_b.c.], options: [{name: ndots, value: "2"}]}
  hostAliases: [{ip: 1.2.3.4, hostnames: [a.b]}]
  terminationGracePeriodSeconds: 30
  activeDeadlineSeconds: 5
  tolerations: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 3}, {key: b, operator: Equal, value: c}]
  securityContext: {runAsUser: 0, runAsGroup: 1, fsGroup: 3, supplementalGroups: [4], fsGroupChangePolicy: Always, supplementalGroupsPolicy: Merge, sysctls: [{name: net.ipv4.ip_forward, value: "1"}], seccompProfile: {type: Localhost, localhostProfile: a/b}, appArmorProfile: {type: RuntimeDefault}}
  runtimeClassName: rc
  priorityClassName: pc
  nodeSelector: {a: b}
  readinessGates: [{conditionType: a/b}]
  os: {name: linux}
  overhead: {cpu: 1m}
  resources: {limits: {cpu: 4, memory: 4Gi}}
  volumes:
  - {name: e, emptyDir: {sizeLimit: 1Gi, medium: Memory}}
  - {name: h, hostPath: {path: /x, type: Directory}}
  - {name: d, downwardAPI: {defaultMode: 420, items: [{path: a, fieldRef: {fieldPath: metadata.labels}}, {path: b, resourceFieldRef: {containerName: main, resource: limits.cpu}}]}}
  - {name: p, projected: {sources: [{downwardAPI: {items: [{path: a, fieldRef: {fieldPath: "metadata.annotations['a']"}}]}}]}}
  - {name: i, image: {reference: a}}
  initContainers:
  - {name: once, image: a, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]}
  - {name: side, image: a, restartPolicy: Always, ports: [{containerPort: 5, hostPort: 6}], startupProbe: {tcpSocket: {port: x}}}
  containers:
  - name: main
    image: busybox
    imagePullPolicy: Always
    terminationMessagePolicy: File
    command: [a]
    restartPolicy: OnFailure
    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]
    ports: [{name: http, containerPort: 80, hostPort: 80, hostIP: 1.1.1.1}, {containerPort: 80, protocol: UDP}]
    env: [{name: "a b", value: x}, {name: C, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}, {name: D, valueFrom: {fieldRef: {fieldPath: "metadata.labels['x/y']"}}}, {name: F, valueFrom: {fileKeyRef: {volumeName: e, path: a, key: K}}}]
    volumeMounts: [{name: e, mountPath: /e, subPath: a/b}, {name: h, mountPath: /h, readOnly: true, recursiveReadOnly: Enabled}, {name: d, mountPath: /d, subPathExpr: a, mountPropagation: HostToContainer}]
    resources: {limits: {cpu: 1, memory: 1Gi, hugepages-2Mi: 4Mi, example.com/gpu: 2}, requests: {cpu: 100m}}
    resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]
    livenessProbe: {httpGet: {port: 80, path: /, scheme: HTTP, httpHeaders: [{name: a, value: b}]}, terminationGracePeriodSeconds: 5}
    readinessProbe: {grpc: {port: 80}, successThreshold: 2}
    startupProbe: {exec: {command: [x]}, failureThreshold: 3}
    lifecycle: {preStop: {sleep: {seconds: 30}}, postStart: {exec: {command: [a]}}}
    securityContext: {runAsUser: 1, privileged: false, procMount: Default, allowPrivilegeEscalation: true, capabilities: {add: [NET_ADMIN]}}
  - {name: second, image: b, ports: [{containerPort: 9}]}
`

var pool = []any{-1, 0, 1, 2, 70000, 99, "", "x", "A_B", "a.b", "..", "../x", "/x", " x ", "a/b", "1", "-1", "1k", "Always", "Never", "None", "Default", "TCP", "Exists", true, false, nil,
	"metadata.name", "status.podIP", "limits.memory", "main", "e", "h", "Localhost", "Unmasked", "Bidirectional", "IfPossible", "Disabled", "kernel.shmmax", "net.a", strings.Repeat("a", 70), strings.Repeat("a", 300), "0.5", "10Gi", "windows"}

func mutate(r *rand.Rand, v any) {
	// collect all containers (maps/lists) weighted
	type spot struct {
		m map[string]any
		l []any
		k string
		i int
		set func(any)
	}
	var spots []spot
	var walk func(v any, setSelf func(any), depth int)
	walk = func(v any, setSelf func(any), depth int) {
		switch t := v.(type) {
		case map[string]any:
			keys := make([]string, 0, len(t))
			for k := range t {
				keys = append(keys, k)
			}
			sort.Strings(keys)
			for _, k := range keys {
				spots = append(spots, spot{m: t, k: k})
				walk(t[k], func(x any) { t[k] = x }, depth+1)
			}
		case []any:
			for i := range t {
				spots = append(spots, spot{l: t, i: i, set: setSelf})
				walk(t[i], func(x any) { t[i] = x }, depth+1)
			}
		}
	}
	walk(v, nil, 0)
	s := spots[r.Intn(len(spots))]
	if s.m != nil {
		switch s.k {
		case "apiVersion", "kind":
			return
		}
		switch r.Intn(4) {
		case 0:
			delete(s.m, s.k)
		default:
			old := s.m[s.k]
			switch old.(type) {
			case map[string]any, []any:
				if r.Intn(3) == 0 {
					delete(s.m, s.k)
				}
				return
			}
			s.m[s.k] = pool[r.Intn(len(pool))]
		}
		return
	}
	switch r.Intn(3) {
	case 0:
		if s.set != nil {
			s.set(append(append([]any{}, s.l[:s.i]...), s.l[s.i+1:]...))
		}
	case 1:
		if s.set != nil {
			b, _ := json.Marshal(s.l[s.i])
			var c any
			json.Unmarshal(b, &c)
			s.set(append(append([]any{}, s.l...), c))
		}
	default:
		switch s.l[s.i].(type) {
		case map[string]any, []any:
			return
		}
		s.l[s.i] = pool[r.Intn(len(pool))]
	}
}

func TestZZDiff(t *testing.T) {
	base, err := yaml.YAMLToJSON([]byte(rich))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewSource(int64(os.Getpid())))
	var in bytes.Buffer
	var docs [][]byte
	for i := 0; i < 9000; i++ {
		var v map[string]any
		json.Unmarshal(base, &v)
		n := r.Intn(3)
		if i > 0 {
			n++
		}
		for j := 0; j < n; j++ {
			mutate(r, v)
		}
		b, _ := json.Marshal(v)
		docs = append(docs, b)
		in.Write(b)
		in.WriteByte('\n')
	}
	cmd := exec.Command("/tmp/podconfdiff/diff")
	cmd.Stdin = &in
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewReaderSize(bytes.NewReader(out), 1<<20)
	counts := map[string]int{}
	shown := map[string]int{}
	for _, d := range docs {
		line, _ := sc.ReadBytes('\n')
		var res struct {
			Err string
			Pod *v1.Pod
		}
		if err := json.Unmarshal(line, &res); err != nil {
			t.Fatal(err)
		}
		opts := loadOptions()
		opts.Warn = func(error) {}
		pods, err := Load(d, opts)
		switch {
		case (err == nil) != (res.Err == ""):
			counts["verdict"]++
			key := fmt.Sprint(res.Err, err)
			if len(key) > 60 { key = key[:60] }
			if shown[key]++; shown[key] < 2 && len(shown) < 40 {
				fmt.Printf("VERDICT k8s=%.300s ours=%.300v\n", res.Err, err)
			}
		case err == nil:
			counts["good"]++
			want, got := res.Pod.Spec, pods[0].Spec
			if !equality.Semantic.DeepEqual(want, got) {
				counts["defaults"]++
				a, _ := json.Marshal(want)
				b, _ := json.Marshal(got)
				if counts["defaults"] < 5 {
					i := 0
					for i < len(a) && i < len(b) && a[i] == b[i] {
						i++
					}
					fmt.Printf("DEFAULTS at %d\n%.200s\n%.200s\n", i, a[max(0, i-60):], b[max(0, i-60):])
				}
			}
		default:
			counts["bad"]++
			var f1 []string
			for _, p := range strings.Split(strings.Trim(res.Err, "[]"), ", ") {
				f1 = append(f1, p)
			}
			_ = f1
		}
	}
	fmt.Println(counts)
}

package check

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/host"
	"github.com/kubeletkit/kubeletkit/node/dra"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parse parses a configuration with these fields, and flags.
func parse(t *testing.T, fields map[string]any, args ...string) (*config.Settings, error) {
	t.Helper()
	content := map[string]any{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
	for name, value := range fields {
		content[name] = value
	}
	data, err := yaml.Marshal(content)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "kubelet.yaml")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return program.Parse(append(args, "--config", path, "--kubeconfig=/kubeconfig",
		"--container-runtime-endpoint=/run/cri.sock"))
}

// some returns a value of the type that requests something.
func some(t *testing.T, typ reflect.Type) any {
	switch typ.Kind() {
	case reflect.Pointer:
		return some(t, typ.Elem())
	case reflect.Bool:
		return true
	case reflect.String:
		return "x"
	case reflect.Slice:
		return []any{some(t, typ.Elem())}
	case reflect.Map:
		return map[string]any{"X": some(t, typ.Elem())}
	case reflect.Struct:
		if name := typ.Name(); name == "Duration" || name == "timeOrDuration" {
			return "7s"
		} else if name == "Quantity" || name == "QuantityValue" {
			return "7"
		}
		fields := map[string]any{}
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || f.Type.Name() == "Time" || f.Type.Kind() == reflect.Pointer &&
				f.Type.Elem().Name() == "Time" {
				continue
			}
			if value := some(t, f.Type); name != "" {
				fields[name] = value
			} else if m, ok := value.(map[string]any); ok {
				for k, v := range m {
					fields[k] = v
				}
			}
		}
		return fields
	case reflect.Float64:
		return 0.5
	default:
		return 7
	}
}

// Each field of a KubeletConfiguration has the same verdict in the check and in the agent: what the
// check calls ignored is a warning at the start, and what it refuses keeps the agent from starting. What is
// ignored has a reason that is about it.
func TestEachFieldAsInTheAgent(t *testing.T) {
	typ := reflect.TypeFor[config.KubeletConfiguration]()
	seen := 0
	for field := range typ.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			continue // kind and apiVersion
		}
		seen++
		t.Run(name, func(t *testing.T) {
			s, err := parse(t, map[string]any{name: some(t, field.Type)})
			require.NotNil(t, s, "%v", err)
			about := func(setting string) bool {
				return setting == name || strings.HasPrefix(setting, name+".")
			}
			refused, found := false, false
			for _, f := range Settings(s, err) {
				switch {
				case f.Verdict == Refused:
					refused = true
					assert.True(t, f.Blocks)
				case about(f.Setting):
					found = true
					warned := strings.Contains(strings.Join(s.Warnings, "\n"), f.Setting)
					assert.Equal(t, f.Verdict == Ignored, warned, "%+v %v", f, s.Warnings)
					if f.Verdict == Ignored {
						assert.NotEmpty(t, f.Why)
						assert.NotEqual(t, explain("x").matters, f.Why, f.Setting)
					}
				}
			}
			assert.Equal(t, err != nil, refused)
			assert.True(t, found, "the field is in the report")
		})
	}
	assert.Greater(t, seen, 100)
}

// Each flag that the agent accepts without an effect is explained.
func TestEachFlagAsInTheAgent(t *testing.T) {
	for _, name := range config.IgnoredFlags() {
		s, err := program.Parse([]string{"--" + name + "=1", "--container-runtime-endpoint=/run/cri.sock"})
		require.NoError(t, err, name)
		findings := slices.DeleteFunc(Settings(s, nil), func(f Finding) bool { return f.Setting != "--"+name })
		require.Len(t, findings, 1, name)
		assert.Equal(t, Ignored, findings[0].Verdict)
		assert.NotEqual(t, explain("x").matters, findings[0].Why, name)
		assert.Contains(t, s.Warnings, "flag --"+name+" "+config.NoEffect)
	}
}

// No explanation is left behind when a setting is implemented.
func TestExplanationsAreNeeded(t *testing.T) {
	ignored := map[string]bool{}
	for _, name := range config.IgnoredFlags() {
		ignored[camel(name)] = true
	}
	for field := range reflect.TypeFor[config.KubeletConfiguration]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		s, _ := parse(t, map[string]any{name: some(t, field.Type)})
		for _, f := range Settings(s, nil) {
			if f.Verdict == Ignored {
				top, _, _ := strings.Cut(f.Setting, ".")
				ignored[top] = true
			}
		}
	}
	for name := range explanations() {
		assert.True(t, ignored[name], name)
	}
}

func TestSettingsOfAnError(t *testing.T) {
	_, err := program.Parse([]string{"--no-such-flag"})
	require.Error(t, err)
	findings := Settings(nil, err)
	require.Len(t, findings, 1)
	assert.True(t, findings[0].Blocks)
	assert.Contains(t, findings[0].Why, "--no-such-flag")
	assert.Len(t, Settings(nil, errors.Join(errors.New("a: 1"), errors.Join(errors.New("b 2"), errors.New("c")))), 3)

	s, err := parse(t, map[string]any{"imagePullCredentialsVerificationPolicy": "Sometimes", "maxPods": -1})
	findings = Report{Findings: Settings(s, err)}.Blocking()
	require.Len(t, findings, 2)
	assert.Equal(t, "imagePullCredentialsVerificationPolicy", findings[0].Setting)
	assert.Equal(t, "maxPods", findings[1].Setting)
}

func TestFieldsThatKubeletHasNot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubelet.yaml")
	require.NoError(t, os.WriteFile(path, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+
		"maxPodz: 3\nquux: 1\nmaxPods: 4\nmaxPods: 5\n"), 0o600))
	s, err := program.Parse([]string{"--config", path, "--kubeconfig=/k"})
	require.NoError(t, err)
	findings := slices.DeleteFunc(Settings(s, nil), func(f Finding) bool { return f.Why == "" })
	assert.Equal(t, []Finding{
		{Area: AreaSettings, Setting: "maxPods", Verdict: Acts, Why: config.Repeated, Do: "keep one of them"},
		{Area: AreaSettings, Setting: "maxPodz", Verdict: Ignored, Why: config.Unknown,
			Do: "correct its name, or remove it; did you mean maxPods?"},
		{Area: AreaSettings, Setting: "quux", Verdict: Ignored, Why: config.Unknown,
			Do: "correct its name, or remove it"},
	}, findings)
}

func TestMachine(t *testing.T) {
	s, err := parse(t, nil)
	require.NoError(t, err)
	findings := Machine(host.Decide(s, host.Facts{Root: true, Swap: true, OOMScoreAdj: "0"}))
	require.Len(t, findings, 2)
	assert.Equal(t, Finding{Area: AreaMachine, Setting: "failSwapOn", Verdict: Refused,
		Why: "swap is on; remove it, or set failSwapOn to false", Do: "a kubelet does not start either", Blocks: true},
		findings[0])
	assert.Equal(t, "oom_score_adj=-999", findings[1].Setting)
	assert.False(t, findings[1].Blocks)
}

func TestState(t *testing.T) {
	for _, tc := range []struct {
		path, content string
		verdict       Verdict
		blocks        bool
	}{
		{"allocated_pods_state", `{}`, Lost, false},
		{"image_manager/pulled", "", Kept, false},
		{"image_manager/pulling", "", Kept, false},
		{"config.json", `{}`, Kept, false},
		{"device-plugins/kubelet_internal_checkpoint", `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}`, Lost, false},
		{"device-plugins/kubelet_internal_checkpoint", `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"gpu","DeviceIDs":{"-1":["0"]}}]},"Checksum":1}`, Kept, false},
		{"pods/u/userns", `{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}`, Kept, false},
		{"pods/u/userns", ``, Kept, false},
		{"pods/u/userns", `{}`, Lost, false},
		{"pods/u/volumes/kubernetes.io~csi", "", Lost, true},
		{"pods/u/volumeDevices/kubernetes.io~csi", "", Lost, true},
		{"pods/u/volumes/kubernetes.io~iscsi", "", Lost, true},
	} {
		findings := State([]File{{Path: tc.path, Content: []byte(tc.content)}}, false)
		require.Len(t, findings, 1, tc)
		f := findings[0]
		assert.Equal(t, tc.verdict, f.Verdict, tc)
		assert.Equal(t, tc.blocks, f.Blocks, tc)
		assert.Equal(t, tc.blocks, f.Do != "", tc)
		assert.NotEmpty(t, f.Why)
		assert.Equal(t, tc.path, f.Setting)
	}
	assert.Empty(t, State([]File{{Path: "pods/u/volumes/kubernetes.io~projected"},
		{Path: "pods/u/volumes/kubernetes.io~empty-dir"}, {Path: "pods/u/volumes/kubernetes.io~nfs"},
		{Path: "something/else"}}, true))
	inCluster := State([]File{{Path: "pods/u/volumes/kubernetes.io~csi"}}, true)
	require.Len(t, inCluster, 1)
	assert.Equal(t, Kept, inCluster[0].Verdict)
}

// The checkpoint of an earlier version is taken over, unless pods have devices in the one in its place.
func TestEarlierDevices(t *testing.T) {
	const none, one, other = `{"Data":{"PodDeviceEntries":null}}`, `{"Data":{"PodDeviceEntries":[{"PodUID":"u"}]}}`,
		`{"Data":{"PodDeviceEntries":[{"PodUID":"v"}]}}`
	for _, tc := range []struct {
		earlier, now string
		verdict      Verdict
		blocks       bool
		why          string
	}{
		{one, "", Kept, false, "the devices of 1 pods, which the agent moves to /now"},
		{one, none, Kept, false, "the devices of 1 pods, which the agent moves to /now"},
		{one, one, Kept, false, "the devices of 1 pods"},
		{one, other, Lost, true, "the devices of 1 pods are not known to the agent, and other pods may get the same: it uses /now"},
		{one, "{", Lost, true, "the devices of 1 pods are not known to the agent, and other pods may get the same: it uses /now"},
		{none, "", Lost, false, "no pod has devices"},
		{"{", "", Lost, false, "it cannot be read: unexpected end of JSON input"},
	} {
		now := File{At: "/now"}
		if tc.now != "" {
			now.Content = []byte(tc.now)
		}
		f := EarlierDevices(File{At: "/earlier", Content: []byte(tc.earlier)}, now)
		assert.Equal(t, tc.blocks, f.Do != "", tc)
		f.Do = ""
		assert.Equal(t, Finding{Area: AreaState, Setting: "/earlier", Verdict: tc.verdict, Blocks: tc.blocks,
			Why: tc.why}, f)
	}
}

// Claims are judged as their manager reads them: it keeps them in a cluster.
func TestClaims(t *testing.T) {
	some := string(dra.FormatState([]dra.ClaimState{{Claim: dra.Claim{Namespace: "ns", Name: "c", UID: "u"},
		Pods: []types.UID{"p"}}}))
	for _, tc := range []struct {
		content  string
		prepares bool
		verdict  Verdict
		blocks   bool
	}{
		{some, true, Kept, false}, {some, false, Stopped, true}, {string(dra.FormatState(nil)), true, Lost, false}, {string(dra.FormatState(nil)), false, Lost, false},
		{"{", true, Lost, false}, {strings.Replace(some, `ns`, `sn`, 1), false, Lost, false},
	} {
		findings := State([]File{{Path: "dra_manager_state", Content: []byte(tc.content)}}, tc.prepares)
		require.Len(t, findings, 1)
		assert.Equal(t, tc.verdict, findings[0].Verdict, tc)
		assert.Equal(t, tc.blocks, findings[0].Blocks, tc)
	}
}

func TestPods(t *testing.T) {
	pod := func(name, uid, source string) Pod {
		return Pod{types.NamespacedName{Namespace: "kube-system", Name: name}, types.UID(uid), source}
	}
	static := []Pod{pod("etcd", "1", ""), pod("apiserver", "2", ""), pod("new", "3", "")}
	running := []Pod{pod("etcd", "1", "file"), pod("apiserver", "9", "file"), pod("web", "5", "api"),
		pod("old", "6", "file")}
	verdicts := func(cluster bool) (all []string) {
		for _, f := range Pods(static, running, cluster) {
			all = append(all, fmt.Sprint(f.Setting, " ", f.Verdict, " ", f.Blocks))
		}
		return all
	}
	assert.Equal(t, []string{
		"kube-system/apiserver restarted true", "kube-system/etcd runs on false", "kube-system/new started false",
		"kube-system/old stopped true", "kube-system/web runs on false",
	}, verdicts(true))
	assert.Contains(t, verdicts(false), "kube-system/web stopped true")
}

func TestPrint(t *testing.T) {
	var b strings.Builder
	require.NoError(t, Print(&b, Report{
		Findings: []Finding{
			{Area: AreaSettings, Setting: "maxPods", Verdict: Acts}, {Area: AreaSettings, Setting: "clusterDNS", Verdict: Acts}, {Area: AreaSettings, Setting: "maxPods", Verdict: Acts},
			{Area: AreaSettings, Setting: "evictionSoft", Verdict: Ignored, Why: "pods are not evicted", Do: "watch the node"},
			{Area: AreaPods, Setting: "a/b", Verdict: RunsOn}, {Area: AreaPods, Setting: "a/c", Verdict: Restarted, Why: "another UID", Blocks: true},
		},
		NotChecked: []string{"the URL of manifests"},
	}))
	assert.Equal(t, `SETTINGS
  act: maxPods, clusterDNS
  evictionSoft: ignored: pods are not evicted
    to do: watch the node
PODS
  run on: a/b
! a/c: restarted: another UID
not checked: the URL of manifests
`, b.String())

	b.Reset()
	places := []Place{{What: "flags"}, {What: "files"}}
	require.NoError(t, Print(&b, Report{LookedFor: places}))
	assert.Equal(t, "NO KUBELET to compare with. There is none of these:\n  flags\n  files\n", b.String())
	b.Reset()
	places[1].Found = true
	require.NoError(t, Print(&b, Report{LookedFor: places}))
	assert.Empty(t, b.String())
}

// program is the program of the tests.
var program = config.Program{Name: "minikubelet", Getenv: os.Getenv}

// No finding stands against a configuration that a kubelet and the agent take, and each setting without effect is one.
func TestConfigurationsOfKubelet(t *testing.T) {
	files, err := filepath.Glob("../config/testdata/kubelet/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var cases []struct {
			Name, Error string
			Args        []string
			Config      *string
			DropIns     map[string]string
		}
		require.NoError(t, yaml.Unmarshal(data, &cases))
		for _, c := range cases {
			if c.Error != "" {
				continue
			}
			t.Run(c.Name, func(t *testing.T) {
				dir := t.TempDir()
				t.Chdir(dir)
				args := append([]string{"--root-dir=/r"}, c.Args...)
				if c.Config != nil {
					require.NoError(t, os.WriteFile("kubelet.yaml", []byte(*c.Config), 0o600))
					args = append(args, "--config=kubelet.yaml")
				}
				for name, content := range c.DropIns {
					require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join("conf.d", name)), 0o700))
					require.NoError(t, os.WriteFile(filepath.Join("conf.d", name), []byte(content), 0o600))
				}
				s, err := program.Parse(args)
				findings := Settings(s, err)
				assert.Equal(t, err != nil, slices.ContainsFunc(findings, func(f Finding) bool { return f.Blocks }))
				if err != nil {
					return
				}
				for _, g := range s.Given {
					assert.True(t, g.Less == "" || slices.ContainsFunc(findings, func(f Finding) bool {
						return f.Setting == g.Name && f.Why != ""
					}), g.Name)
				}
			})
		}
	}
}

package config

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// asKubelet is a configuration, and what kubelet makes of it: TestConfigurationsOfKubelet in test/e2e writes that.
type asKubelet struct {
	Name string `json:"name"`
	// Args, Config and DropIns are the flags, the file of --config, and those of the directory conf.d.
	Args    []string          `json:"args"`
	Config  *string           `json:"config"`
	DropIns map[string]string `json:"dropIns"`
	// Want are the fields of the first level that differ from those of a file without fields; nil for one that is
	// missing.
	Want map[string]any `json:"want"`
	// Error is why kubelet does not start.
	Error string `json:"error"`
}

func readAsKubelet(t *testing.T, name string) (cases []asKubelet) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "kubelet", name+".yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(data, &cases))
	return cases
}

// Every configuration is read as kubelet reads it, field by field, but for what is listed.
func TestAsKubelet(t *testing.T) {
	defaults := readAsKubelet(t, "defaults")[0].Want
	for _, file := range []string{"defaults", "distributions", "fields", "files", "flags"} {
		for _, c := range readAsKubelet(t, file) {
			t.Run(c.Name, func(t *testing.T) {
				want := maps.Clone(defaults)
				maps.Copy(want, c.Want)
				maps.DeleteFunc(want, func(_ string, value any) bool { return value == nil })
				c.compare(t, want)
			})
		}
	}
}

func (c asKubelet) compare(t *testing.T, want map[string]any) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, content := range c.DropIns {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, "conf.d", name)), 0o755))
		write(t, filepath.Join(dir, "conf.d", name), content)
	}
	args := append([]string{"--root-dir=/var/lib/kubelet"}, c.Args...)
	if c.Config != nil {
		require.NoError(t, os.Mkdir(filepath.Join(dir, "etc"), 0o755))
		write(t, filepath.Join(dir, "etc", "kubelet.yaml"), *c.Config)
		args = append(args, "--config", filepath.Join(dir, "etc", "kubelet.yaml"))
	}
	s, err := program.Parse(args)
	if why := c.verdictDiffers(); why != "" {
		assert.NotEqual(t, c.Error == "", err == nil, "listed as different: %s", why)
		return
	}
	if c.Error != "" {
		require.Error(t, err, "kubelet: %s", c.Error)
		return
	}
	require.NoError(t, err)
	for name := range s.StaticPodURLHeader { // kubelet does not log them
		s.StaticPodURLHeader[name] = []string{masked}
	}
	s.Logging.Verbosity = uint32(s.Verbosity)
	data, err := json.Marshal(want)
	require.NoError(t, err)
	want = map[string]any{}
	require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(string(data), "DIR", dir)), &want))
	require.NoError(t, absolutePaths(want, dir))
	if path, _ := want["staticPodPath"].(string); path != "" {
		want["staticPodPath"] = filepath.Clean(path)
	}
	data, err = json.Marshal(s.KubeletConfiguration)
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(data, &got))
	for _, path := range differing("", got, want) {
		if len(notImplemented("", at(path))) == 0 && c.valueDiffers(path) == "" {
			t.Errorf("%s: %v here, %v in kubelet", path, field(got, path), field(want, path))
		}
	}
}

// differing returns the paths of the fields with different values, sorted.
func differing(prefix string, a, b map[string]any) (paths []string) {
	for name := range maps.All(merge(a, b)) {
		below, isMap := a[name].(map[string]any)
		other, isMapToo := b[name].(map[string]any)
		switch {
		case isMap && isMapToo && !slices.Contains(strings.Fields(implemented), prefix+name):
			paths = append(paths, differing(prefix+name+".", below, other)...)
		case !reflect.DeepEqual(a[name], b[name]):
			paths = append(paths, prefix+name)
		}
	}
	slices.Sort(paths)
	return paths
}

func merge(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// at returns a configuration with a field of the path.
func at(path string) map[string]any {
	first, rest, below := strings.Cut(path, ".")
	if !below {
		return map[string]any{first: true}
	}
	return map[string]any{first: at(rest)}
}

func field(fields map[string]any, path string) any {
	first, rest, below := strings.Cut(path, ".")
	if !below {
		return fields[first]
	}
	inner, _ := fields[first].(map[string]any)
	return field(inner, rest)
}

// valueDiffers returns why a field has another value than in kubelet; "" if it must not.
func (c asKubelet) valueDiffers(path string) string {
	const (
		same   = "the same, in other words"
		legacy = "kubelet has the defaults of its flags without --config, which are not safe"
	)
	why := map[string]string{
		"serializeImagePulls":          "pulls run side by side by default",
		"apiVersion":                   same,
		"kind":                         same,
		"mergeDefaultEvictionSettings": same,
		"memorySwap":                   same,
		"podPidsLimit":                 same,
		"cgroupRoot":                   same,
		"resolvConf":                   "the file of systemd-resolved is found if none is given",
	}
	if os.Geteuid() != 0 {
		why["podLogsDir"] = "below the root directory of somebody without privileges"
	}
	if c.Config == nil {
		maps.Copy(why, map[string]string{
			"readOnlyPort": legacy, "authentication": legacy, "authorization": legacy, "evictionHard": legacy,
			"failSwapOn":   "a warning without a configuration",
			"failCgroupV1": "a warning without a configuration",
		})
	}
	switch {
	case c.Name == "no API server":
		maps.Copy(why, map[string]string{
			"authentication": "no API server answers", "authorization": "no API server answers",
			"enableServer": "nobody could be authorized",
		})
	case strings.HasPrefix(c.Name, "nodeStatusUpdateFrequency"):
		why["nodeStatusReportFrequency"] = "follows the frequency that counts, and not that of the file"
	case c.Name == "flag --seccomp-default":
		why["seccompDefault"] = same
	}
	return why[path]
}

// verdictDiffers returns why a configuration is refused where kubelet accepts it, or accepted where it does not; "" if
// it must not.
func (c asKubelet) verdictDiffers() string {
	const (
		later   = "kubelet ends when it uses the value"
		without = "the field is not implemented"
	)
	name, _, _ := strings.Cut(c.Name, " in ")
	return map[string]string{
		"systemCgroups":                     "cgroupRoot is / by default",
		"a bit out of range":                without,
		"flag --runonce":                    "kubelet has it no more",
		"tlsCertFile":                       later,
		"tlsPrivateKeyFile":                 later,
		"evictionSoft":                      later,
		"soft without a grace period":       later,
		"a threshold that is no quantity":   later,
		"topology options of a gate":        later,
		"static CPUs without a reservation": later,
		"log size wrong":                    later,
	}[name]
}

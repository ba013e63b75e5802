package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

var updateConfigurations = flag.Bool("update-configurations", false,
	"write what kubelet makes of the configurations of package config")

// configuration is one of kubelet/internal/config/testdata/kubelet, whose test has its fields.
type configuration struct {
	Name    string            `json:"name"`
	Args    []string          `json:"args,omitempty"`
	Config  *string           `json:"config,omitempty"`
	DropIns map[string]string `json:"dropIns,omitempty"`
	Want    map[string]any    `json:"want,omitempty"`
	Error   string            `json:"error,omitempty"`
}

// What kubelet makes of these configurations is what the unit tests of package config compare with.
func TestConfigurationsOfKubelet(t *testing.T) {
	kubelet := harness.KubernetesBinary(t, "kubelet")
	// All make their certificate in one directory, once.
	certs := t.TempDir()
	defaults, refused := effectiveOfKubelet(t, kubelet, certs, configuration{Config: new(header)})
	require.Empty(t, refused)
	files, err := filepath.Glob("../../kubelet/internal/config/testdata/kubelet/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			var stored []configuration
			require.NoError(t, yaml.UnmarshalStrict(data, &stored))
			now := make([]configuration, len(stored))
			var group errgroup.Group
			group.SetLimit(4)
			for i, c := range stored {
				group.Go(func() error {
					now[i] = c
					var effective map[string]any
					effective, now[i].Error = effectiveOfKubelet(t, kubelet, certs, c)
					now[i].Want = differs(effective, defaults)
					if filepath.Base(file) == "defaults.yaml" {
						now[i].Want = effective
					}
					return nil
				})
			}
			require.NoError(t, group.Wait())
			if *updateConfigurations {
				data, err := yaml.Marshal(now)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(file, data, 0o644))
			}
			for i := range stored {
				// The text has maps in any order.
				assert.Equal(t, stored[i].Error == "", now[i].Error == "", "%s: %s", stored[i].Name, now[i].Error)
				assert.Equal(t, stored[i].Want, now[i].Want, stored[i].Name)
			}
		})
	}
}

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// differs returns the fields of the first level that differ from the defaults; one that is missing is nil.
func differs(effective, defaults map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range effective {
		if !reflect.DeepEqual(value, defaults[name]) {
			out[name] = value
		}
	}
	for name := range defaults {
		if _, ok := effective[name]; !ok && effective != nil {
			out[name] = nil
		}
	}
	if len(out) == 0 {
		return nil // as it is read
	}
	return out
}

// A line of the log has a text with one line in quotes; one of several lines is between <\n and \n >, with a tab before
// each line.
var (
	effectiveLine = regexp.MustCompile(`"Effective KubeletConfiguration" config=<\n((?s:.*?))\n >`)
	refusalLine   = regexp.MustCompile(`"command failed" err=(".*"|(?s:<\n.*?\n >))|(panic: .*)`)
	// What kubelet says of this machine, and its dump of the configuration.
	ofMachine = regexp.MustCompile(`(, )?kubelet is configured to not run on a host using cgroup v1[^,\]]*future release|(?s:, path: &TypeMeta.*)`)
)

// ends are the errors by which a kubelet ends that takes the configuration: it is to exit when another one has its
// lock, and has no lock; or a file does not exist.
var ends = regexp.MustCompile(`^((failed to run Kubelet: )?cannot exit on lock file contention|failed to construct kubelet dependencies|` +
	`failed to validate kubelet configuration, error: (\[invalid configuration: \])?$)`)

var jsonLine = regexp.MustCompile(`(?m)^{.*}$`)

// asText returns a line of a log in JSON as one in text.
func asText(line []byte) []byte {
	var entry struct{ Msg, Config, Err string }
	if json.Unmarshal(line, &entry) != nil {
		return line
	}
	if entry.Config != "" {
		return fmt.Appendf(nil, "%q config=<\n\t%s\n >", entry.Msg, strings.ReplaceAll(entry.Config, "\n", "\n\t"))
	}
	return fmt.Appendf(nil, "%q err=%q", entry.Msg, entry.Err)
}

// effectiveOfKubelet returns the configuration that kubelet logs before it begins, or why it does not.
func effectiveOfKubelet(t *testing.T, kubelet, certs string, c configuration) (effective map[string]any, refused string) {
	dir := t.TempDir()
	args := append([]string{"--exit-on-lock-contention", "--cert-dir", certs}, c.Args...)
	write := func(name, content string) {
		path := filepath.Join(dir, name)
		assert.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		assert.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	if c.Config != nil {
		write("etc/kubelet.yaml", *c.Config)
		args = append(args, "--config", filepath.Join(dir, "etc/kubelet.yaml"))
	}
	for name, content := range c.DropIns {
		write(filepath.Join("conf.d", name), content)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, kubelet, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	out = jsonLine.ReplaceAllFunc(out, asText)
	failure := refusalLine.FindSubmatch(out)
	if failure == nil {
		t.Errorf("%s: the kubelet did not end by an error: %v\n%s", c.Name, err, out)
		return nil, ""
	}
	refused = cmp.Or(string(failure[1]), string(failure[2]))
	if text, err := strconv.Unquote(refused); err == nil {
		refused = text
	} else {
		refused = strings.TrimSpace(strings.ReplaceAll(strings.Trim(refused, "<>"), "\n\t", "\n"))
	}
	refused = ofMachine.ReplaceAllString(strings.ReplaceAll(refused, dir, "DIR"), "")
	if !ends.MatchString(refused) {
		return nil, refused
	}
	if dump := effectiveLine.FindSubmatch(out); dump != nil {
		content := strings.ReplaceAll(strings.ReplaceAll("\n"+string(dump[1]), "\n\t", "\n"), dir, "DIR")
		assert.NoError(t, yaml.Unmarshal([]byte(content), &effective), c.Name)
	}
	if effective == nil {
		t.Errorf("%s: no configuration in the log of kubelet:\n%s", c.Name, out)
	}
	return effective, ""
}

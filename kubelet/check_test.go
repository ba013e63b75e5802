package kubelet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/check"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

// tree returns the paths below dir with their sizes and times.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := entry.Info()
		require.NoError(t, err)
		all[path] = info.Mode().String() + info.ModTime().String()
		return nil
	}))
	return all
}

// checked runs the check, and returns the findings by their settings.
func checked(t *testing.T, args ...string) (map[string]check.Finding, check.Report, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := checkCommand(program, &out)
	cmd.SetArgs(append(args, "-o", "json"))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	var report check.Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &report), "%v %s", err, out.String())
	found := map[string]check.Finding{}
	for _, f := range report.Findings {
		found[f.Setting] = f
	}
	return found, report, err
}

// The check of a node reads its pods, its state and its manifests, says what happens to each, and changes
// nothing.
func TestCheck(t *testing.T) {
	b := newBench(t)
	b.put("web", "i")
	static := filepath.Join(b.manifests, "static.yaml")
	const manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: static%s}\nspec:\n  containers:\n  - {name: c, " +
		"image: i}\n"
	write(t, static, fmt.Sprintf(manifest, ", uid: of-a-kubelet"))
	b.start()
	b.await("web-n", "pods")
	b.await("static-n", "pods")
	for _, pod := range []string{"web", "static"} {
		b.await("Status: Running", "describe", pod)
	}
	b.stop()
	write(t, static, fmt.Sprintf(manifest, "")) // that the kubelet has read
	past := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(static, past, past))
	b.put("new", "i")
	b.put("broken", "")
	lenient := filepath.Join(b.manifests, "lenient.yaml")
	write(t, lenient, "apiVersion: v1\nkind: Pod\nmetadata: {name: lenient}\nspek: {}\nspec: {containers: [{name: a, image: i}], "+
		"volumes: [{name: v, emptyDir: {mode: 0700}}]}\n")
	state := filepath.Join(b.root, "device-plugins")
	require.NoError(t, os.MkdirAll(state, 0o700))
	write(t, filepath.Join(state, "kubelet_internal_checkpoint"), `{"Data":{"PodDeviceEntries":[{"PodUID":"u"}]}}`)
	args := b.args()
	before := tree(t, b.root)
	found, report, err := checked(t, args...)
	require.ErrorContains(t, err, ", 1 against a start")
	assert.Empty(t, report.NotChecked)
	assert.Equal(t, check.RunsOn, found["default/web-n"].Verdict, report)
	assert.Equal(t, check.RunsOn, found["default/static-n"].Verdict)
	assert.Equal(t, check.Started, found["default/new-n"].Verdict)
	assert.Equal(t, check.Refused, found[filepath.Join(b.manifests, "broken.yaml")].Verdict)
	assert.Equal(t, check.Started, found["default/lenient-n"].Verdict)
	assert.Equal(t, check.Ignored, found[lenient].Verdict)
	assert.Contains(t, found[lenient].Why, `unknown field "spek"`)
	assert.Contains(t, report.Findings, check.Finding{Area: check.AreaPods, Setting: "default/lenient-n",
		Verdict: check.Ignored, Why: "spec.volumes[0].emptyDir.mode has no effect without the feature gate " +
			"EmptyDirVolumeMode, as in kubelet"})
	assert.Equal(t, check.Kept, found["device-plugins/kubelet_internal_checkpoint"].Verdict)
	assert.Equal(t, check.Acts, found["cgroupRoot"].Verdict)
	assert.Equal(t, before, tree(t, b.root), "nothing was changed")

	write(t, static, fmt.Sprintf(manifest, "")) // not the one that the kubelet has read
	found, _, err = checked(t, args...)
	require.ErrorContains(t, err, ", 2 against a start")
	assert.Equal(t, check.Restarted, found["default/static-n"].Verdict)
}

// Without --config, the files are those of kubeadm.
func TestCheckFindsKubeadmsFiles(t *testing.T) {
	root := t.TempDir()
	args, err := kubeletArgs(root, []string{"--v=2"}, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"--v=2"}, args, "there are none")

	for path, content := range map[string]string{
		check.KubeadmConfig:                  header,
		"/var/lib/kubelet/kubeadm-flags.env": "KUBELET_KUBEADM_ARGS=\"--hostname-override=a --node-ip=192.0.2.7\"\n",
		"/etc/default/kubelet":               "# KUBELET_EXTRA_ARGS=--v=1\nKUBELET_EXTRA_ARGS=--max-pods=7\nOTHER=--max-pods=8\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o700))
		write(t, filepath.Join(root, path), content)
	}
	args, err = kubeletArgs(root, []string{"--v=2"}, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"--bootstrap-kubeconfig=" + root + "/etc/kubernetes/bootstrap-kubelet.conf", "--kubeconfig=" + root +
			"/etc/kubernetes/kubelet.conf",
		"--config=" + root + "/var/lib/kubelet/config.yaml", "--hostname-override=a", "--node-ip=192.0.2.7",
		"--max-pods=7", "--v=2",
	}, args)
	s, err := program.Parse(args)
	require.NoError(t, err)
	assert.EqualValues(t, 7, s.MaxPods)

	args, err = kubeletArgs(root, []string{"--config=/x"}, []string{filepath.Join(root, "etc/default/kubelet")})
	require.NoError(t, err)
	assert.Equal(t, []string{"--max-pods=7", "--config=/x"}, args)
}

// Settings that the agent refuses are findings. Only flags that cannot be read are an error.
func TestCheckOfWrongSettings(t *testing.T) {
	found, report, err := checked(t, "--oom-score-adj=-2000", "--root-dir", t.TempDir(), "--kubeconfig=/no/such/file",
		"--container-runtime-endpoint=embedded", "--fail-swap-on=false", "--fail-cgroupv1=false")
	require.ErrorContains(t, err, ", 2 against a start")
	assert.Equal(t, check.Refused, found["oomScoreAdj"].Verdict)
	assert.Equal(t, check.Refused, found["--kubeconfig"].Verdict, report)
	assert.Equal(t, check.Acts, found["--root-dir"].Verdict)
	assert.Equal(t, []string{"the pods that run: the embedded runtime is not started"}, report.NotChecked)
	assert.True(t, report.HasKubelet(), "--kubeconfig is given")

	usage := (*config.UsageError)(nil)
	for _, args := range [][]string{{"--no-such-flag"}, {"-o", "wide"}, {"word"}} {
		cmd := checkCommand(program, io.Discard)
		cmd.SetArgs(args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		require.ErrorAs(t, cmd.ExecuteContext(t.Context()), &usage, args)
	}
}

// Without a kubelet, the check says so, and names what it has looked for. The exit code is 0 only if everything was
// compared.
func TestCheckWithoutKubelet(t *testing.T) {
	run := func(fsRoot string, args ...string) (string, error) {
		var out bytes.Buffer
		err := runCheck(t.Context(), program, fsRoot, append(args, "--fail-swap-on=false", "--fail-cgroupv1=false"),
			nil,
			"", &out)
		return out.String(), err
	}
	fsRoot, rootDir := t.TempDir(), t.TempDir()
	shown, err := run(fsRoot, "--root-dir="+rootDir)
	require.ErrorContains(t, err, "there is no kubelet to compare with")
	assert.Equal(t, 3, ExitCode(err))
	for _, what := range []string{
		"NO KUBELET to compare with", "--config-dir", "/var/lib/kubelet/config.yaml", "root directory /var/lib/kubelet",
		"root directory " + rootDir, "a process with the name kubelet",
	} {
		assert.Contains(t, shown, what)
	}

	for name, path := range map[string]string{"files": "var/lib/kubelet/cpu_manager_state", "process": "proc/7/comm"} {
		t.Run(name, func(t *testing.T) {
			fsRoot := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(fsRoot, filepath.Dir(path)), 0o700))
			write(t, filepath.Join(fsRoot, path), "kubelet\n")
			shown, err := run(fsRoot, "--root-dir="+rootDir)
			require.ErrorContains(t, err, "not all was checked")
			assert.Equal(t, 3, ExitCode(err))
			assert.NotContains(t, shown, "NO KUBELET")
			assert.Contains(t, shown, "not checked: the pods that run")
			report := inspect(t.Context(), program, fsRoot, nil)
			assert.Contains(t, report.NotChecked, "the settings of the kubelet: give its flags")
		})
	}
}

// The runtime of a program is not behind an endpoint, so its pods are not compared.
func TestCheckOfAProgramWithARuntime(t *testing.T) {
	own := program
	own.OwnRuntime = true
	report := inspect(t.Context(), own, t.TempDir(), []string{"--root-dir=" + t.TempDir()})
	assert.Contains(t, report.NotChecked, "the pods that run: the program has a container runtime of its own")
}

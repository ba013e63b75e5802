package kubelet

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/check"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

// The command lines of docs/operate/swap.md are those that the agent and the check accept. The variables of
// the drop-in are those of kubeadm's unit.
func TestSnippetsOfTheSwap(t *testing.T) {
	text, err := os.ReadFile("../docs/operate/swap.md")
	require.NoError(t, err)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.yaml"), header)
	parts := filepath.Join(dir, "parts")
	require.NoError(t, os.Mkdir(parts, 0o700))
	kubeadm := check.KubeadmArgs()
	variables := strings.NewReplacer( // as in 10-kubeadm.conf of kubeadm's packages
		"$KUBELET_KUBECONFIG_ARGS", strings.Join(kubeadm[:2], " "), "$KUBELET_CONFIG_ARGS", kubeadm[2],
		"$KUBELET_KUBEADM_ARGS", strings.Join(check.FlagsOf(`KUBELET_KUBEADM_ARGS="--hostname-override=node-1"`), " "),
		"$KUBELET_EXTRA_ARGS", "",
	)
	configs := regexp.MustCompile(`(--config[= ])\S+`)
	dirs := regexp.MustCompile(`(--config-dir[= ])\S+`)
	agents, checks := 0, 0
	for line := range strings.Lines(string(text)) {
		line = variables.Replace(strings.TrimSpace(line))
		line = dirs.ReplaceAllString(configs.ReplaceAllString(line, "${1}"+filepath.Join(dir, "config.yaml")),
			"${1}"+parts)
		var args []string
		if _, after, ok := strings.Cut(line, "/usr/local/bin/minikubelet "); ok {
			args, agents = strings.Fields(after), agents+1
		} else if after, ok := strings.CutPrefix(line, "sudo minikubelet check"); ok {
			args, checks = strings.Fields(after), checks+1
		} else {
			continue
		}
		assert.NotContains(t, line, "$")
		s, err := program.Parse(args)
		require.NoError(t, err, line)
		assert.NotContains(t, strings.Join(s.Warnings, "\n"), config.NoEffect, line)
	}
	assert.Equal(t, 3, agents)
	assert.Equal(t, 3, checks)
}

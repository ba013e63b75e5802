package client

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

func TestCompletion(t *testing.T) {
	one, two := web(), named(web(), "db", "u2")
	two.Namespace = "team-a"
	one.Spec.Containers[0].Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 8080}}
	root := answering(t, map[string]any{"/pods": v1.PodList{Items: []v1.Pod{*one, *two}}})
	complete := func(args ...string) string {
		var out strings.Builder
		require.NoError(t, runCommand(t.Context(), append([]string{"__completeNoDesc"}, args...), &out,
			&strings.Builder{}))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Regexp(t, `^:\d+$`, lines[len(lines)-1])
		return strings.Join(lines[:len(lines)-1], " ") // the last one is for the script
	}
	with := func(command string, args ...string) string {
		words := strings.Fields(command)
		return complete(slices.Concat(words[:1], []string{"--root-dir", root}, words[1:], args)...)
	}
	assert.Equal(t, "logs", complete("lo"))
	assert.Equal(t, "events images nodes pods", complete("get", ""))
	assert.Equal(t, "bash fish zsh", complete("completion", ""))
	assert.Equal(t, "describe", complete("help", "des"))
	assert.Contains(t, complete("--pod-man"), "--pod-manifest-path")
	assert.Equal(t, "json yaml wide name jsonpath=", complete("pods", "-o", ""))
	assert.Equal(t, "json yaml wide name jsonpath=", complete("version", "-o", ""))
	assert.Equal(t, "age name namespace restarts status", complete("get", "pods", "--sort-by", ""))
	assert.Equal(t, "cpu memory name namespace", complete("top", "--sort-by", ""))
	assert.Equal(t, "age name size used", complete("images", "--sort-by", ""))
	assert.Equal(t, "Warning", complete("events", "--types", "W"))
	assert.Contains(t, complete("logs", "--si"), "--since")
	for _, command := range []string{"describe", "history", "logs", "exec", "attach", "port-forward"} {
		assert.Equal(t, "web-n1", with(command, ""), command)
		assert.Equal(t, "db", with(command+" -n team-a", ""), command)
		assert.Equal(t, "team-a/db", with(command, "team-a/"), command)
		assert.Equal(t, "default team-a", with(command, "-n", ""), command)
	}
	assert.Equal(t, "web-n1", complete("--root-dir", root, "logs", "w"), "the flag is before the command")
	assert.Equal(t, "setup proxy a b", with("logs web -c", ""))
	assert.Equal(t, "setup proxy a b", with("logs default/web", ""))
	assert.Equal(t, "setup proxy a b", with("exec web -c", ""))
	assert.Equal(t, "8080 http", with("port-forward web", ""))
	assert.Equal(t, "web-n1:", with("cp", "we"))
	assert.Equal(t, "default team-a", with("pods -n", ""))
	assert.Equal(t, "node", with("top", "no"))
	assert.Equal(t, "web-n1", with("pods", ""))
	assert.Equal(t, "web-n1", with("inspect", ""))
	assert.Equal(t, "team-a/db", with("get pods", "team-a/"))
	assert.Equal(t, "web-n1", with("events", ""))
	assert.Empty(t, with("exec web --", ""), "commands of the container are not known")
	assert.Empty(t, complete("logs", "--root-dir", t.TempDir(), ""), "there is no agent")
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var out strings.Builder
		require.NoError(t, runCommand(t.Context(), []string{"completion", shell}, &out, &strings.Builder{}))
		assert.Contains(t, out.String(), "__complete")
	}
}

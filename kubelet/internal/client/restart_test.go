package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestRestart(t *testing.T) {
	n := &node{}
	root := serveNode(t, n)
	var out strings.Builder
	run := func(args ...string) error {
		out.Reset()
		return runCommand(t.Context(), append([]string{"restart", "--root-dir", root}, args...), &out, &out)
	}
	require.NoError(t, run("web"))
	assert.Equal(t, []string{"u1", "a"}, n.stopped, "those that run")
	assert.Equal(t, "user "+UserName(os.Getuid()), n.stoppedBy)
	assert.Contains(t, out.String(), "Stopped a of pod default/web-n1; ")
	require.NoError(t, run("web", "-c", "b"))
	assert.Equal(t, []string{"u1", "b"}, n.stopped)
	require.ErrorContains(t, run("web", "-c", "x"), `has no container "x"`)
	require.ErrorContains(t, run(), "want the name of one pod")
	require.ErrorContains(t, run("dns"), "there is no pod")
}

// The restart policy decides before anything is stopped.
func TestRestartPolicies(t *testing.T) {
	pod := web()
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	root := answering(t, map[string]any{"/pods": v1.PodList{Items: []v1.Pod{*pod}}})
	var out strings.Builder
	err := runCommand(t.Context(), []string{"restart", "web", "-c", "a", "--root-dir", root}, &out, &out)
	require.ErrorContains(t, err, "restart policy of container a of pod default/web-n1 would not start it again")
	pod.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	root = answering(t, map[string]any{"/pods": v1.PodList{Items: []v1.Pod{*pod}}, control.RestartPath + "u1": ""})
	require.NoError(t, runCommand(t.Context(), []string{"restart", "web", "-c", "a", "--root-dir", root}, &out, &out))
	assert.Contains(t, out.String(), "Container a does not start again if it ends with exit code 0.")
}

func TestDelete(t *testing.T) {
	dir, off := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "web.yaml")
	writeFile(t, path, "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: b}]}\n")
	pod := func(source string) *v1.Pod {
		p := web()
		p.Annotations = map[string]string{podspec.AnnotationConfigSource: source}
		return p
	}
	run := func(p *v1.Pod, args ...string) error {
		root := answering(t, map[string]any{"/pods": v1.PodList{Items: []v1.Pod{*p}},
			control.StatusPath: control.Status{NodeName: "n1", Manifests: dir}})
		var out strings.Builder
		return runCommand(t.Context(), append([]string{"delete", "web", "--root-dir", root}, args...), &out, &out)
	}
	require.ErrorContains(t, run(pod(podspec.SourceAPI)), "kubectl delete pod -n default web-n1")
	require.ErrorContains(t, run(pod("http")), `is of source "http", which would bring it back`)
	require.ErrorContains(t, run(pod(manifest.SourceFile)), "is of manifest "+path+", which would bring it back")
	require.ErrorContains(t, run(pod(manifest.SourceFile), "--move-to", dir), "exists already")
	require.ErrorContains(t, run(pod(manifest.SourceFile), "--move-to", filepath.Join(off, "x")), "no such file")
	assert.FileExists(t, path)
	require.NoError(t, os.Remove(path))
	require.ErrorContains(t, run(pod(manifest.SourceFile)), "no file of "+dir+" that can be used has it")
}

//go:build unix

package cri

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

const at = "2026-01-02T03:04:05.000000006Z "

func TestTerminationMessage(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	// message returns a file as one for the termination message.
	names := 0
	name := func() string { names++; return fmt.Sprintf("termination-log.a.%08x", names) }
	message := func(content string) string { return file(name(), content) }
	log := file("0.log", at+"stdout F from the log\n")
	pipe := filepath.Join(dir, name())
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	link := filepath.Join(dir, name())
	require.NoError(t, os.Symlink(log, link))

	readFile, fallback := v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError
	tests := []struct {
		name   string
		path   string
		host   string
		policy v1.TerminationMessagePolicy
		code   int32
		reason string
		log    string
		want   string
	}{
		{name: "the file", host: message("goodbye"), policy: readFile, want: "goodbye"},
		{name: "a relative path", path: "dev/termination-log", host: message("goodbye"), policy: readFile, want: "goodbye"},
		{name: "no path", path: "none", host: message("goodbye"), policy: readFile},
		{name: "the end of a long file", host: message(strings.Repeat("a", 5000) + "b"), policy: readFile, want: strings.Repeat("a", 4095) + "b"},
		{name: "kubelet's", host: file("containers/a/0123abcd", "goodbye"), policy: readFile, want: "goodbye"},
		{name: "another file", host: file("shadow", "secret"), policy: readFile},
		{name: "of another container", host: file("termination-log.b.0123abcd", "secret"), policy: readFile},
		{name: "another directory", host: file("a/0123abcd", "secret"), policy: readFile},
		{name: "no file", host: filepath.Join(dir, name()), policy: readFile, code: 1},
		{name: "an empty file, and the log", host: message(""), policy: fallback, code: 1, log: log, want: "from the log\n"},
		{name: "the file comes first", host: message("goodbye"), policy: fallback, code: 1, log: log, want: "goodbye"},
		{name: "no failure, no log", policy: fallback, code: 0, log: log},
		{name: "never started, no log", policy: fallback, code: 128, reason: "ContainerCannotRun", log: log},
		{name: "no log", policy: fallback, code: 1, log: filepath.Join(dir, "none"),
			want: "Error on reading termination message from logs: open " + dir + "/none: no such file or directory"},
		{name: "a pipe in place of the log is not waited for", policy: fallback, code: 1, log: pipe,
			want: "Error on reading termination message from logs: not a regular file, but p---------"},
		{name: "a link in place of the log is not followed", policy: fallback, code: 1, log: link,
			want: "Error on reading termination message from logs: open " + link +
				": too many levels of symbolic links"},
		{name: "a pipe is not waited for", host: pipe, policy: readFile,
			want: "Error on reading termination log " + pipe + ": not a regular file, but p---------"},
		{name: "a link is not followed", host: link, policy: readFile,
			want: "Error on reading termination log " + link + ": open " + link +
				": too many levels of symbolic links"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &criv1.ContainerStatus{Metadata: &criv1.ContainerMetadata{Name: "a"}, ExitCode: tt.code,
				Reason: tt.reason, LogPath: tt.log}
			if tt.host != "" {
				s.Mounts = []*criv1.Mount{{ContainerPath: "/else"},
					{ContainerPath: "/dev/termination-log", HostPath: tt.host}}
			}
			record := &crimeta.Record{TerminationMessagePath: cmp.Or(tt.path, "/dev/termination-log"),
				TerminationMessagePolicy: tt.policy}
			assert.Equal(t, tt.want, terminationMessage(s, record))
		})
	}
}

// A spec can mount a file below a hostPath at the path of the termination message. The container
// replaces a directory above it by a link, and reads a file of the host from its status.
func TestTerminationMessageThatIsAnotherFile(t *testing.T) {
	dir := t.TempDir()
	secrets, own := filepath.Join(dir, "etc"), filepath.Join(dir, "tenant", "d")
	for _, d := range []string{secrets, own} {
		require.NoError(t, os.MkdirAll(d, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(d, "shadow"), []byte(filepath.Base(d)), 0o600))
	}
	said := filepath.Join(dir, "termination-log.a.0123abcd")
	require.NoError(t, os.WriteFile(said, []byte("goodbye"), 0o600))
	require.NoError(t, os.RemoveAll(own))
	require.NoError(t, os.Symlink(secrets, own))
	const at = "/dev/termination-log"
	s := &criv1.ContainerStatus{Metadata: &criv1.ContainerMetadata{Name: "a"}, Mounts: []*criv1.Mount{
		{ContainerPath: at, HostPath: filepath.Join(own, "shadow")},
	}}
	record := &crimeta.Record{TerminationMessagePath: at, TerminationMessagePolicy: v1.TerminationMessageReadFile}
	assert.Empty(t, terminationMessage(s, record))
	s.Mounts = append(s.Mounts, &criv1.Mount{ContainerPath: at, HostPath: said})
	assert.Equal(t, "goodbye", terminationMessage(s, record))
}

//go:build unix

package cri

import (
	"bytes"
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

	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
)

const at = "2026-01-02T03:04:05.000000006Z "

func TestTailOf(t *testing.T) {
	tests := []struct {
		name  string
		data  string
		cut   bool
		lines int
		limit int
		want  string
	}{
		{name: "nothing", lines: 5, limit: 100},
		{name: "both streams", data: at + "stdout F one\n" + at + "stderr F two\n", lines: 5, limit: 100, want: "one\ntwo\n"},
		{name: "partial lines are joined", data: at + "stdout P one\n" + at + "stdout F  two\n", lines: 5, limit: 100, want: "one two\n"},
		{name: "further tags", data: at + "stdout P:x one\n" + at + "stdout F:y two\n", lines: 5, limit: 100, want: "onetwo\n"},
		{name: "an empty line", data: at + "stdout F \n", lines: 5, limit: 100, want: "\n"},
		{name: "the last lines", data: at + "stdout F one\n" + at + "stdout F two\n" + at + "stdout F three\n", lines: 2, limit: 100, want: "two\nthree\n"},
		{name: "the last bytes", data: at + "stdout F one\n" + at + "stdout F two\n", lines: 5, limit: 5, want: "\ntwo\n"},
		{name: "a last line without end", data: at + "stdout F one\n" + at + "stdout F tw", lines: 5, limit: 100, want: "one\ntw\n"},
		{name: "other lines say nothing", data: "x\n" + at + "stdin F one\n" + at + "stdout\n" + at + "stdout F\n" + at + "stdout F two\n", lines: 9, limit: 100, want: "two\n"},
		{name: "the rest of a line", data: "stdout F on\n" + at + "stdout F two\n", cut: true, lines: 5, limit: 100, want: "two\n"},
		{name: "no line", data: at + "stdout F one\n", lines: 0, limit: 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, string(tailOf([]byte(tt.data), !tt.cut, tt.lines, tt.limit)))
		})
	}
}

func FuzzTailOf(f *testing.F) {
	f.Add([]byte(at+"stdout P one\n"+at+"stderr F two"), true, 3, 10)
	f.Fuzz(func(t *testing.T, data []byte, whole bool, lines, limit int) {
		lines, limit = lines&0xff, limit&0xffff
		before := bytes.Clone(data)
		out := tailOf(data, whole, lines, limit)
		if len(out) > limit {
			t.Fatalf("%d bytes, limit %d", len(out), limit)
		}
		if n := bytes.Count(out, []byte{'\n'}); n > lines {
			t.Fatalf("%d lines, limit %d", n, lines)
		}
		if !bytes.Equal(data, before) {
			t.Fatal("the input was changed")
		}
	})
}

func TestTailLogReadsTheEndOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	var log strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&log, "%sstdout F line %d %s\n", at, i, strings.Repeat("x", i%300))
	}
	require.NoError(t, os.WriteFile(path, []byte(log.String()), 0o600))
	got, err := tailLog(path, 3, 10000)
	require.NoError(t, err)
	assert.Equal(t, 3, bytes.Count(got, []byte{'\n'}))
	assert.True(t, strings.HasPrefix(string(got), "line 19997 "), "%.20q", got)

	whole, err := tailLog(path, 1000000, 1<<30)
	require.NoError(t, err)
	assert.Contains(t, string(whole), "\nline 19000 ")
}

func TestTerminationMessage(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	log := file("0.log", at+"stdout F from the log\n")
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(log, link))

	readFile, fallback := v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError
	tests := []struct {
		name   string
		host   string
		policy v1.TerminationMessagePolicy
		code   int32
		reason string
		log    string
		want   string
	}{
		{name: "the file", host: file("said", "goodbye"), policy: readFile, want: "goodbye"},
		{name: "the end of a long file", host: file("long", strings.Repeat("a", 5000)+"b"), policy: readFile, want: strings.Repeat("a", 4095) + "b"},
		{name: "no file", host: filepath.Join(dir, "none"), policy: readFile, code: 1},
		{name: "an empty file, and the log", host: file("empty", ""), policy: fallback, code: 1, log: log, want: "from the log\n"},
		{name: "the file comes first", host: file("said", "goodbye"), policy: fallback, code: 1, log: log, want: "goodbye"},
		{name: "no failure, no log", policy: fallback, code: 0, log: log},
		{name: "never started, no log", policy: fallback, code: 128, reason: "ContainerCannotRun", log: log},
		{name: "no log", policy: fallback, code: 1, log: filepath.Join(dir, "none"),
			want: "Error on reading termination message from logs: open " + dir + "/none: no such file or directory"},
		{name: "a pipe is not waited for", host: pipe, policy: readFile,
			want: "Error on reading termination log " + pipe + ": not a regular file, but p---------"},
		{name: "a link is not followed", host: link, policy: readFile,
			want: "Error on reading termination log " + link + ": open " + link + ": too many levels of symbolic links"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &criv1.ContainerStatus{ExitCode: tt.code, Reason: tt.reason, LogPath: tt.log}
			if tt.host != "" {
				s.Mounts = []*criv1.Mount{{ContainerPath: "/else"}, {ContainerPath: "/dev/termination-log", HostPath: tt.host}}
			}
			record := &translate.Record{TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: tt.policy}
			assert.Equal(t, tt.want, terminationMessage(s, record))
		})
	}
}

package agent_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// An agent without a logger logs by package slog, so that a pod that it refuses is not lost without a word.
func TestAZeroLoggerIsThatOfSlog(t *testing.T) {
	var out testenv.Output
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	rejected := func(log logr.Logger) []string {
		synctest.Test(t, func(t *testing.T) {
			n := startNodeWith(t, t.TempDir(), fake.New(fake.Options{}),
				func(o *kubeletkit.Options) { o.Observe.Logger = log })
			defer n.stop(t)
			pod := makePod("web")
			pod.UID = ""
			n.source.Set(pod)
			n.after(time.Second)
		})
		var found []string
		for _, line := range out.Take() {
			if strings.Contains(line, "web") {
				found = append(found, line)
			}
		}
		return found
	}
	found := rejected(logr.Logger{})
	require.Len(t, found, 1, "once")
	assert.Contains(t, found[0], `level=ERROR msg="Pod rejected"`)
	assert.Contains(t, strings.ToLower(found[0]), "uid")
	assert.Empty(t, rejected(logr.FromSlogHandler(slog.DiscardHandler)))
}

// What fails is one line of the log, and an event that is no failure is one under its own message.
func TestAFailureIsLoggedOnce(t *testing.T) {
	var out testenv.Output
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Inject(fake.Fault{Call: "PullImage", Err: errors.New("no such image")})
		n := startNodeWith(t, t.TempDir(), rt, func(o *kubeletkit.Options) {
			o.Observe.Logger = logr.FromSlogHandler(slog.NewTextHandler(&out, nil))
		})
		defer n.stop(t)
		n.after(time.Second)
		out.Take()
		pod := makePod("web")
		pod.Spec.DNSPolicy = v1.DNSDefault
		n.source.Set(pod)
		n.after(5 * time.Second)
		lines := out.Take()
		require.Len(t, lines, 1, strings.Join(lines, "\n"))
		assert.Contains(t, lines[0], "level=ERROR")
		assert.Contains(t, lines[0], "pod=default/web")
		assert.Contains(t, lines[0], "no such image")
	})
}

// Each field Logger in the options of a package has a default, which its comment states.
func TestEachLoggerHasADefault(t *testing.T) {
	field := regexp.MustCompile(`(?m)^\tLogger +logr\.Logger$`)
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path == "examples" || path == "test" || path == "internal" || path == "cluster/internal" ||
				d.Name() == ".git" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, at := range field.FindAllIndex(data, -1) {
			above := string(data[:at[0]])
			comment := above[strings.LastIndex(above, "\n\t// Logger"):]
			assert.Regexp(t, `(?s)Default.*\n?.*package slog`, strings.ReplaceAll(comment, "\n\t// ", " "), path)
			files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.go"))
			defaulted := 0
			for _, f := range files {
				source, _ := os.ReadFile(f)
				// that of a module of its own
				defaulted += bytes.Count(source, []byte("logging.OrDefault(")) + bytes.Count(source,
					[]byte("slog.Default().Handler()"))
			}
			assert.Positive(t, defaulted, path)
		}
		return nil
	}))
}

package logging_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/internal/logging"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOrDefault(t *testing.T) {
	var standard, own bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&standard, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	for name, log := range map[string]logr.Logger{"zero": {}, "named": logr.Logger{}.WithName("n"),
		"Discard": logr.Discard()} {
		standard.Reset()
		logging.OrDefault(log).Error(errors.New("broken"), "It fails", "pod", "web")
		assert.Contains(t, standard.String(), `level=ERROR msg="It fails" err=broken pod=web`, name)
	}

	standard.Reset()
	silent := logr.FromSlogHandler(slog.DiscardHandler)
	logging.OrDefault(silent).Error(errors.New("broken"), "It fails")
	assert.False(t, logging.OrDefault(silent).Enabled())
	logging.OrDefault(funcr.New(func(_, args string) { own.WriteString(args) }, funcr.Options{})).Info("It works")
	assert.Contains(t, own.String(), "It works")
	assert.Empty(t, standard.String())
}

func TestDenied(t *testing.T) {
	var b bytes.Buffer
	log := funcr.New(func(_, args string) { b.WriteString(args) }, funcr.Options{})
	logging.Denied(log, errors.New("broken")).Info("It fails")
	assert.NotEmpty(t, b.String())

	b.Reset()
	logging.Denied(log, fmt.Errorf("opening the log: %w", syscall.EPERM)).Info("It fails")
	assert.Equal(t, os.Geteuid() != 0, b.Len() == 0)
}

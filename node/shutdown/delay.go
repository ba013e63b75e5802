package shutdown

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// logind reads its files after Reload has returned. The times are kubelet's.
const (
	delayPolls = 5
	pollMin    = 100 * time.Millisecond
)

// raiseDelay returns how long the machine waits. If that is less than the periods need, it writes a drop-in for
// logind first. If the drop-in has no effect, the pods have the time that there is. An error is one of the connection.
func (m *Manager) raiseDelay(ctx context.Context) (time.Duration, error) {
	needed := m.periods.Total()
	delay, err := m.inhibitDelay(ctx)
	if err != nil || delay >= needed {
		return delay, err
	}
	path := filepath.Join(m.opts.DropInDir, dropIn)
	if err := writeDropIn(path, needed); err != nil {
		m.say(problemDelay, err, "Time that the machine waits for pods at a shutdown cannot be raised; their "+
			"periods are shortened. Set InhibitDelayMaxSec in logind.conf")
		return delay, nil
	}
	if err := m.reload(ctx); err != nil {
		return 0, fmt.Errorf("having logind read %s: %w", path, err)
	}
	wait := flow.Backoff{Min: pollMin, Max: time.Minute}
	for poll := range delayPolls {
		if !flow.Sleep(ctx, wait.After(poll+1)) {
			return 0, context.Cause(ctx)
		}
		if delay, err = m.inhibitDelay(ctx); err != nil || delay >= needed {
			return delay, err
		}
	}
	m.say(problemDelay, fmt.Errorf("logind waits %s at most, and not the %s of %s", delay, needed, path),
		"Time that the machine waits for pods at a shutdown is too short; their periods are shortened. Another file "+
			"may set InhibitDelayMaxSec: see systemd-analyze cat-config systemd/logind.conf")
	return delay, nil
}

func (m *Manager) reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return m.session.Reload(ctx)
}

func (m *Manager) inhibitDelay(ctx context.Context) (time.Duration, error) {
	delay, err := within(ctx, m.session.InhibitDelay)
	if err != nil {
		return 0, fmt.Errorf("asking logind how long the machine waits: %w", err)
	}
	return delay, nil
}

// writeDropIn writes kubelet's file for logind.
func writeDropIn(path string, delay time.Duration) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=%.0f\n", delay.Seconds())
	if err := safefile.WriteSync(path, []byte(text)); err != nil {
		return err
	}
	return os.Chmod(path, 0o644) // as kubelet; it is no secret
}

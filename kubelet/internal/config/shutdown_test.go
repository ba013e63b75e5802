package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/node/shutdown"
)

func TestShutdownSettings(t *testing.T) {
	period := func(priority int32, seconds int) shutdown.Period {
		return shutdown.Period{Priority: priority, GracePeriod: time.Duration(seconds) * time.Second}
	}
	for name, tc := range map[string]struct {
		config, err string
		want        shutdown.Periods
	}{
		"none":     {config: ""},
		"zero":     {config: "shutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\n"},
		"classes":  {config: "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n", want: shutdown.Periods{period(0, 20), period(2_000_000_000, 10)}},
		"all":      {config: "shutdownGracePeriod: 30s\n", want: shutdown.Periods{period(0, 30), period(2_000_000_000, 0)}},
		"priority": {config: "shutdownGracePeriodByPodPriority: [{priority: 100, shutdownGracePeriodSeconds: 5}, {priority: 0, shutdownGracePeriodSeconds: 60}]\n", want: shutdown.Periods{period(0, 60), period(100, 5)}},
		"gate off": {config: "featureGates: {GracefulNodeShutdown: false}\n"},
		"the gate of priorities off": {
			config: "featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}\nshutdownGracePeriod: 30s\n",
			want:   shutdown.Periods{period(0, 30), period(2_000_000_000, 0)},
		},

		"critical above total": {config: "shutdownGracePeriod: 10s\nshutdownGracePeriodCriticalPods: 30s\n", err: "shutdownGracePeriodCriticalPods 30s: must not be more than shutdownGracePeriod 10s"},
		"below a second":       {config: "shutdownGracePeriod: 100ms\n", err: "shutdownGracePeriod 100ms: must be 0 or at least 1s"},
		"critical too short":   {config: "shutdownGracePeriod: 10s\nshutdownGracePeriodCriticalPods: 100ms\n", err: "shutdownGracePeriodCriticalPods 100ms: must be 0 or at least 1s"},
		"negative":             {config: "shutdownGracePeriod: -10s\nshutdownGracePeriodCriticalPods: -20s\n", err: "shutdownGracePeriod -10s: must be 0 or at least 1s"},
		"without the gate":     {config: "featureGates: {GracefulNodeShutdown: false}\nshutdownGracePeriod: 10s\n", err: "need the feature gate GracefulNodeShutdown"},
		"priorities without the gate": {
			config: "featureGates: {GracefulNodeShutdownBasedOnPodPriority: " +
				"false}\nshutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 60}]\n",
			err: "shutdownGracePeriodByPodPriority needs the feature gate GracefulNodeShutdownBasedOnPodPriority",
		},
		"both": {config: "shutdownGracePeriod: 10s\nshutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 60}]\n", err: "cannot be given beside shutdownGracePeriod"},
		"negative seconds": {
			config: "shutdownGracePeriodByPodPriority: [{priority: 7, shutdownGracePeriodSeconds: -1}]\n",
			err:    "shutdownGracePeriodSeconds -1 of priority 7: must not be negative",
		},
		"too many seconds": {config: "shutdownGracePeriodByPodPriority: [{priority: 7, shutdownGracePeriodSeconds: 9223372036854775807}]\n", err: "nor more than"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := parsed(t, header+tc.config)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, s.ShutdownPeriods())
			assert.NoError(t, s.ShutdownPeriods().Validate())
			assert.Empty(t, s.Warnings)
			if len(tc.want) == 0 {
				assert.Equal(t, shutdown.Unlimited(), s.DrainPeriods())
			} else {
				assert.Equal(t, tc.want, s.DrainPeriods())
			}
		})
	}
	s, err := parsed(t, header+"featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}\n")
	require.NoError(t, err)
	assert.Empty(t, s.ShutdownStateDir(), "kubelet keeps the times with this gate only")
	s, err = parsed(t, header, "--root-dir=/r")
	require.NoError(t, err)
	assert.Equal(t, "/r", s.ShutdownStateDir())
}

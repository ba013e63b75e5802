package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/node/logs"
)

// logFields are the settings of the rotation of logs.
const logFields = "containerLogMaxSize containerLogMaxFiles containerLogMaxWorkers containerLogMonitorInterval"

// addLogFlags binds the flags of the rotation of logs.
func (s *Settings) addLogFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.ContainerLogMaxSize, "container-log-max-size", s.ContainerLogMaxSize,
		"size at which the log of a container is rotated; below 0 for never")
	fs.Int32Var(s.ContainerLogMaxFiles, "container-log-max-files", *s.ContainerLogMaxFiles,
		"files of logs that a container has at most")
}

// logDefaults are kubelet's.
func logDefaults(c *KubeletConfiguration) {
	def(&c.ContainerLogMaxSize, "10Mi")
	def(&c.ContainerLogMaxFiles, ptr.To[int32](5))
	def(&c.ContainerLogMaxWorkers, ptr.To[int32](1))
	def(&c.ContainerLogMonitorInterval, &metav1.Duration{Duration: 10 * time.Second})
}

// LogOptions returns how logs are rotated, and false if they are not.
func (s *Settings) LogOptions() (logs.Options, bool) {
	size, _ := logSize(s.ContainerLogMaxSize)
	return logs.Options{
		Dir: s.PodLogsDir, MaxSize: size, MaxFiles: int(*s.ContainerLogMaxFiles),
		RuntimeRotates: s.Embedded,
		MaxWorkers:     int(*s.ContainerLogMaxWorkers), Interval: s.ContainerLogMonitorInterval.Duration,
	}, size >= 0
}

func logSize(text string) (int64, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, err
	}
	size, ok := q.AsInt64()
	if !ok || size == 0 {
		return 0, errors.New("it is not a number of bytes")
	}
	return size, nil
}

// validateLogs judges as kubelet does, which checks the size only when it starts, and rotates a log of any size if it
// is 0.
func (s *Settings) validateLogs() (errs []error) {
	if _, err := logSize(s.ContainerLogMaxSize); err != nil {
		errs = append(errs, fmt.Errorf("containerLogMaxSize %q: %w", s.ContainerLogMaxSize, err))
	}
	if n := *s.ContainerLogMaxFiles; n < 2 {
		errs = append(errs, fmt.Errorf("containerLogMaxFiles %d: must be at least 2", n))
	}
	if n := *s.ContainerLogMaxWorkers; n < 1 {
		errs = append(errs, fmt.Errorf("containerLogMaxWorkers %d: must be at least 1", n))
	}
	if d := s.ContainerLogMonitorInterval.Duration; d < 3*time.Second {
		errs = append(errs, fmt.Errorf("containerLogMonitorInterval %s: must be at least 3s", d))
	}
	return errs
}

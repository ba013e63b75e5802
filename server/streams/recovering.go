package streams

import (
	"context"
	"io"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// recovering makes a panic of a runtime the error of one session.
type recovering struct{ rt runtime.Streamer }

func (r recovering) ExecStream(ctx context.Context, id runtime.ContainerID, cmd []string,
	streams runtime.Streams) (code int32, err error) {
	err = runtime.Recover(func() (err error) {
		code, err = r.rt.ExecStream(ctx, id, cmd, streams)
		return err
	})
	return code, err
}

func (r recovering) AttachStream(ctx context.Context, id runtime.ContainerID, streams runtime.Streams) error {
	return runtime.Recover(func() error { return r.rt.AttachStream(ctx, id, streams) })
}

func (r recovering) ForwardPort(ctx context.Context, sandboxID string, port int32, conn io.ReadWriteCloser) error {
	return runtime.Recover(func() error { return r.rt.ForwardPort(ctx, sandboxID, port, conn) })
}

package fake

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// errStopped is the cause with which calls in progress end when the runtime stops.
var errStopped = errors.New("the runtime has stopped")

func unavailable() error {
	return status.Error(codes.Unavailable, "the fake runtime is stopped")
}

// pending is a call that has begun: it is recorded, and its faults are determined.
type pending struct {
	s      *service
	ctx    context.Context // that of the call
	cancel context.CancelCauseFunc
	rec    *Call
	hits   []*fault
	// err is set if the call is not served.
	err error
}

// intercept serves every unary call, over a wire or not.
func (s *service) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	serve grpc.UnaryHandler) (any, error) {
	return s.begin(ctx, path.Base(info.FullMethod), req).run(func(ctx context.Context) (any,
		error) {
		return serve(ctx, req)
	})
}

// run serves the call with its faults. It is called once.
func (p *pending) run(serve func(ctx context.Context) (any, error)) (any, error) {
	defer p.cancel(nil)
	var resp any
	err := p.err
	if err == nil {
		err = strike(p.ctx, p.hits, false)
	}
	if err == nil {
		resp, err = serve(p.ctx)
	}
	if err == nil && makesEvents(resp) {
		err = p.s.awaitRoom(p.ctx)
	}
	if err == nil {
		err = strike(p.ctx, p.hits, true)
	}
	if errors.Is(context.Cause(p.ctx), errStopped) {
		err = unavailable() // also if it was executed: its answer is lost
	}
	err = asStatus(err)
	p.s.finish(p.rec, resp, err)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// makesEvents reports whether a call with this response has caused events for which
// slow listeners can block it. In containerd, calls that stop something are not blocked.
func makesEvents(resp any) bool {
	switch resp.(type) {
	case *criv1.RunPodSandboxResponse, *criv1.CreateContainerResponse, *criv1.StartContainerResponse,
		*criv1.RemoveContainerResponse, *criv1.RemovePodSandboxResponse:
		return true
	}
	return false
}

// asStatus converts an error to a gRPC status. The errors of package runtime get the
// codes that a client converts back.
func asStatus(err error) error {
	if err == nil {
		return nil
	}
	if st, ok := status.FromError(err); ok {
		return st.Err()
	}
	switch {
	case errors.Is(err, runtime.ErrUnavailable):
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, runtime.ErrNotFound):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	default:
		return status.Error(codes.Unknown, err.Error())
	}
}

// begin records a call and determines its faults.
func (s *service) begin(ctx context.Context, method string, req any) *pending {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastCall++
	p := &pending{s: s, ctx: ctx, cancel: cancel, rec: &Call{Seq: s.lastCall, Method: method, Began: time.Now()}}
	s.describe(p.rec, req)
	s.keep(p.rec)
	switch {
	case s.down:
		p.err = unavailable()
	case slices.Contains(s.opts.Without, method):
		p.err = status.Errorf(codes.Unimplemented, "unknown method %s", method)
	default:
		s.underWay[p.rec.Seq] = cancel
		for _, f := range s.faults {
			if f.hits(p.rec) {
				p.hits = append(p.hits, f)
			}
		}
	}
	s.cond.Changed()
	return p
}

// keep adds a call to the record. mu is held.
func (s *service) keep(rec *Call) {
	switch {
	case s.opts.Calls < 0:
	case len(s.calls) < s.opts.Calls:
		s.calls = append(s.calls, rec)
	default:
		s.calls[s.next] = rec
		s.next = (s.next + 1) % len(s.calls)
	}
}

// finish completes the record of a call.
func (s *service) finish(rec *Call, resp any, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.underWay, rec.Seq)
	rec.Ended, rec.Err = time.Now(), err
	switch r := resp.(type) {
	case *criv1.RunPodSandboxResponse:
		rec.ID = cmp.Or(rec.ID, r.GetPodSandboxId())
	case *criv1.CreateContainerResponse:
		rec.ID = cmp.Or(rec.ID, r.GetContainerId())
	}
	s.cond.Changed()
}

// describe sets the fields of a call from its request. mu is held.
func (s *service) describe(rec *Call, req any) {
	switch r := req.(type) {
	case *criv1.RunPodSandboxRequest:
		rec.Pod, rec.Attempt = podOf(r.GetConfig().GetMetadata()), r.GetConfig().GetMetadata().GetAttempt()
	case *criv1.CreateContainerRequest:
		rec.Container, rec.Attempt = r.GetConfig().GetMetadata().GetName(), r.GetConfig().GetMetadata().GetAttempt()
		rec.Image = cmp.Or(r.GetConfig().GetImage().GetUserSpecifiedImage(), r.GetConfig().GetImage().GetImage())
		if sb := s.sandboxes.byID[r.GetPodSandboxId()]; sb != nil {
			rec.Pod = sb.pod
		}
	case *criv1.ListPodSandboxRequest:
		s.describePod(rec, r.GetFilter().GetLabelSelector())
	case *criv1.ListContainersRequest:
		s.describePod(rec, r.GetFilter().GetLabelSelector())
	case *criv1.StreamPodSandboxesRequest:
		s.describePod(rec, r.GetFilter().GetLabelSelector())
	case *criv1.StreamContainersRequest:
		s.describePod(rec, r.GetFilter().GetLabelSelector())
	case *criv1.PullImageRequest:
		rec.Image, rec.ID = imageOf(r.GetImage())
		rec.Username = r.GetAuth().GetUsername()
		if m := r.GetSandboxConfig().GetMetadata(); m != nil {
			rec.Pod = podOf(m)
		}
	case *criv1.StopContainerRequest:
		rec.Grace = podspec.Seconds(r.GetTimeout())
		s.describeContainer(rec, r.GetContainerId())
	case interface { // ExecSync, Exec
		GetContainerId() string
		GetCmd() []string
	}:
		rec.Command = slices.Clone(r.GetCmd())
		s.describeContainer(rec, r.GetContainerId())
	case interface{ GetContainerId() string }:
		s.describeContainer(rec, r.GetContainerId())
	case interface{ GetPodSandboxId() string }:
		if sb := s.sandboxes.byID[r.GetPodSandboxId()]; sb != nil {
			rec.Pod, rec.Attempt = sb.pod, sb.config.GetMetadata().GetAttempt()
		}
		rec.ID = r.GetPodSandboxId()
	case interface{ GetImage() *criv1.ImageSpec }:
		rec.Image, rec.ID = imageOf(r.GetImage())
	}
}

// imageOf returns the name of an image in the spec of a container, and the reference in
// the request.
func imageOf(spec *criv1.ImageSpec) (name, ref string) {
	return cmp.Or(spec.GetUserSpecifiedImage(), spec.GetImage()), spec.GetImage()
}

// describePod sets the pod that a label selector selects. mu is held.
func (s *service) describePod(rec *Call, selector map[string]string) {
	uid := selector[crimeta.LabelPodUID]
	rec.Pod.UID = types.UID(uid)
	if sandboxes := s.sandboxes.byPod[uid]; uid != "" && len(sandboxes) > 0 {
		rec.Pod = sandboxes[0].pod
	}
}

func (s *service) describeContainer(rec *Call, id string) {
	rec.ID = id
	if c := s.containers.byID[id]; c != nil {
		rec.Pod, rec.Container, rec.Image = c.sandbox.pod, c.name(), c.image()
		rec.Attempt = c.config.GetMetadata().GetAttempt()
	}
}

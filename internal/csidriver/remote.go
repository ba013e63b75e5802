package csidriver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Remote is a driver in another process, with the socket [Options.Control]. Its methods are those of [Driver]. It is
// safe for concurrent use, and is usable again after the driver was restarted.
type Remote struct{ client http.Client }

// NewRemote returns the driver with a control socket. It does not connect.
func NewRemote(socket string) *Remote {
	return &Remote{client: http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // no connection and no goroutine is left
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
}

// call sends the JSON of in, unless it is nil, and stores the answer in out, unless it is nil.
func (r *Remote) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://driver"+path, body)
	if err != nil {
		return err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, path, strings.TrimSpace(string(data)))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}

// Calls is that of [Driver].
func (r *Remote) Calls(ctx context.Context) (calls []Call, err error) {
	return calls, r.call(ctx, http.MethodGet, "/calls", nil, &calls)
}

// ForgetCalls is that of [Driver].
func (r *Remote) ForgetCalls(ctx context.Context) error {
	return r.call(ctx, http.MethodDelete, "/calls", nil, nil)
}

// Violations is that of [Driver].
func (r *Remote) Violations(ctx context.Context) (violations []string, err error) {
	return violations, r.call(ctx, http.MethodGet, "/violations", nil, &violations)
}

// Inject is that of [Driver].
func (r *Remote) Inject(ctx context.Context, f Fault) (remove func(context.Context) error, err error) {
	var id int
	if err := r.call(ctx, http.MethodPost, "/faults", f, &id); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return r.call(ctx, http.MethodDelete, "/faults/"+strconv.Itoa(id), nil, nil)
	}, nil
}

// Release is that of [Driver].
func (r *Remote) Release(ctx context.Context) error {
	return r.call(ctx, http.MethodDelete, "/faults", nil, nil)
}

// Settings is that of [Driver], without BackendHealth.
func (r *Remote) Settings(ctx context.Context) (s Settings, err error) {
	return s, r.call(ctx, http.MethodGet, "/settings", nil, &s)
}

// Update is that of [Driver]. A change by somebody else at the same time may be lost. BackendHealth stays as it is.
func (r *Remote) Update(ctx context.Context, change func(*Settings)) error {
	s, err := r.Settings(ctx)
	if err != nil {
		return err
	}
	change(&s)
	return r.call(ctx, http.MethodPut, "/settings", s, nil)
}

// AddVolume is that of [Driver].
func (r *Remote) AddVolume(ctx context.Context, id string, capacity int64) error {
	return r.call(ctx, http.MethodPost, "/volumes", volumeJSON{ID: id, Capacity: capacity}, nil)
}

// AttachVolume is that of [Driver].
func (r *Remote) AttachVolume(ctx context.Context, id, node string,
	c *csi.VolumeCapability) (publishContext map[string]string, err error) {
	return publishContext, r.call(ctx, http.MethodPost, "/attachments",
		volumeJSON{ID: id, Node: node, Capability: message{c}}, &publishContext)
}

// Registered is that of [Driver].
func (r *Remote) Registered(ctx context.Context, n int) (*registerapi.RegistrationStatus, error) {
	var out message
	if err := r.call(ctx, http.MethodGet, "/registered/"+strconv.Itoa(n), nil, &out); err != nil {
		return nil, err
	}
	status, ok := out.Message.(*registerapi.RegistrationStatus)
	if !ok {
		return nil, fmt.Errorf("the result of the registration is a %T", out.Message)
	}
	return status, nil
}

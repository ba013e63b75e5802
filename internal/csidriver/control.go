package csidriver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// message is a message in JSON, with its type.
type message struct{ proto.Message }

func (m message) MarshalJSON() ([]byte, error) {
	if m.Message == nil {
		return []byte("null"), nil
	}
	packed, err := anypb.New(m.Message)
	if err != nil {
		return nil, err
	}
	return protojson.Marshal(packed)
}

func (m *message) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	var packed anypb.Any
	err := protojson.Unmarshal(data, &packed)
	if err == nil {
		m.Message, err = packed.UnmarshalNew()
	}
	return err
}

type callJSON struct {
	Method  string
	Request message
	Done    bool
	Code    codes.Code
}

// MarshalJSON implements [json.Marshaler].
func (c Call) MarshalJSON() ([]byte, error) {
	return json.Marshal(callJSON{c.Method, message{c.Request}, c.Done, c.Code})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *Call) UnmarshalJSON(data []byte) error {
	var from callJSON
	err := json.Unmarshal(data, &from)
	*c = Call{from.Method, from.Request.Message, from.Done, from.Code}
	return err
}

type faultFields Fault // has no methods

type faultJSON struct {
	faultFields
	Answer message
}

// MarshalJSON implements [json.Marshaler].
func (f Fault) MarshalJSON() ([]byte, error) {
	return json.Marshal(faultJSON{faultFields(f), message{f.Answer}})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (f *Fault) UnmarshalJSON(data []byte) error {
	var from faultJSON
	err := json.Unmarshal(data, &from)
	*f = Fault(from.faultFields)
	f.Answer = from.Answer.Message
	return err
}

// volumeJSON is what AddVolume and AttachVolume are called with.
type volumeJSON struct {
	ID, Node   string
	Capacity   int64
	Capability message
}

// control serves what tests do with a driver of another process, see [Remote].
func (d *Driver) control() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			out, err := f(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			_ = json.NewEncoder(w).Encode(out) // otherwise the client is gone
		})
	}
	handle("GET /calls", func(*http.Request) (any, error) { return d.Calls(), nil })
	handle("DELETE /calls", func(*http.Request) (any, error) { d.ForgetCalls(); return nil, nil })
	handle("GET /violations", func(*http.Request) (any, error) { return d.Violations(), nil })
	handle("GET /settings", func(*http.Request) (any, error) { return d.Settings(), nil })
	handle("PUT /settings", func(r *http.Request) (any, error) {
		var to Settings
		if err := json.NewDecoder(r.Body).Decode(&to); err != nil {
			return nil, err
		}
		d.Update(func(s *Settings) {
			to.BackendHealth = s.BackendHealth
			*s = to
		})
		return nil, nil
	})
	handle("POST /faults", func(r *http.Request) (any, error) {
		var f Fault
		if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
			return nil, err
		}
		return d.inject(f).id, nil
	})
	handle("DELETE /faults/{id}", func(r *http.Request) (any, error) {
		id, err := strconv.Atoi(r.PathValue("id"))
		d.remove(func(f *fault) bool { return f.id == id })
		return nil, err
	})
	handle("DELETE /faults", func(*http.Request) (any, error) { d.Release(); return nil, nil })
	handle("POST /volumes", func(r *http.Request) (any, error) {
		var v volumeJSON
		if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
			return nil, err
		}
		return nil, d.AddVolume(v.ID, v.Capacity)
	})
	handle("POST /attachments", func(r *http.Request) (any, error) {
		var v volumeJSON
		if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
			return nil, err
		}
		capability, ok := v.Capability.Message.(*csi.VolumeCapability)
		if !ok {
			return nil, fmt.Errorf("the capability is a %T", v.Capability.Message)
		}
		return d.AttachVolume(v.ID, v.Node, capability)
	})
	handle("GET /registered/{n}", func(r *http.Request) (any, error) {
		n, err := strconv.Atoi(r.PathValue("n"))
		if err != nil {
			return nil, err
		}
		status, err := d.Registered(r.Context(), n)
		return message{status}, err
	})
	return mux
}

func (d *Driver) controlServer() *http.Server {
	return &http.Server{Handler: d.control(), ReadHeaderTimeout: time.Minute}
}

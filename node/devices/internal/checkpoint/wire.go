package checkpoint

import (
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// The numbers of the fields of ContainerAllocateResponse in deviceplugin/v1beta1. Its messages have strings and one
// bool. They are encoded here, because the generated package depends on gRPC.
const (
	fieldEnv = iota + 1
	fieldMount
	fieldDevice
	fieldAnnotation
	fieldCDI
)

// Encode returns the edits of a container as a ContainerAllocateResponse. It has environment variables, mounts,
// devices, annotations and names of CDI; other edits are left out.
func Encode(e runtime.ContainerEdits) []byte {
	out := []byte{}
	add := func(field protowire.Number, readOnly bool, values ...string) {
		var message []byte
		for i, v := range values {
			if v != "" {
				message = protowire.AppendString(protowire.AppendTag(message, protowire.Number(i+1),
					protowire.BytesType), v)
			}
		}
		if readOnly {
			message = protowire.AppendVarint(protowire.AppendTag(message, 3, protowire.VarintType), 1)
		}
		out = protowire.AppendBytes(protowire.AppendTag(out, field, protowire.BytesType), message)
	}
	for _, v := range e.Env {
		add(fieldEnv, false, v.Name, v.Value)
	}
	for _, m := range e.Mounts {
		add(fieldMount, m.ReadOnly, m.ContainerPath, m.HostPath)
	}
	for _, d := range e.Devices {
		add(fieldDevice, false, d.ContainerPath, d.HostPath, d.Permissions)
	}
	for _, key := range slices.Sorted(maps.Keys(e.Annotations)) {
		add(fieldAnnotation, false, key, e.Annotations[key])
	}
	for _, name := range e.CDIDevices {
		add(fieldCDI, false, name)
	}
	return out
}

var errMessage = errors.New("not a ContainerAllocateResponse")

// Decode is the inverse of [Encode]. Environment variables are in the order of their names, because a message has none.
func Decode(message []byte) (e runtime.ContainerEdits, err error) {
	env := map[string]string{}
	err = fields(message, func(number protowire.Number, value []byte, _ uint64) error {
		var text [4]string
		var flag bool
		if err := fields(value, func(number protowire.Number, value []byte, n uint64) error {
			if 0 < number && int(number) < len(text) {
				text[number], flag = string(value), n != 0
			}
			return nil
		}); err != nil {
			return err
		}
		switch number {
		case fieldEnv:
			env[text[1]] = text[2]
		case fieldMount:
			e.Mounts = append(e.Mounts, runtime.BindMount{ContainerPath: text[1], HostPath: text[2], ReadOnly: flag})
		case fieldDevice:
			e.Devices = append(e.Devices, runtime.Device{ContainerPath: text[1], HostPath: text[2],
				Permissions: text[3]})
		case fieldAnnotation:
			if e.Annotations == nil {
				e.Annotations = map[string]string{}
			}
			e.Annotations[text[1]] = text[2]
		case fieldCDI:
			e.CDIDevices = append(e.CDIDevices, text[1])
		}
		return nil
	})
	if err != nil {
		return runtime.ContainerEdits{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		e.Env = append(e.Env, v1.EnvVar{Name: name, Value: env[name]})
	}
	return e, nil
}

// fields calls f with each field of a message: the value of bytes, or the number.
func fields(message []byte, f func(number protowire.Number, value []byte, n uint64) error) error {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return errMessage
		}
		message = message[size:]
		var value []byte
		var n uint64
		switch kind {
		case protowire.BytesType:
			value, size = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(message)
		default:
			size = protowire.ConsumeFieldValue(number, kind, message)
		}
		if size < 0 {
			return errMessage
		}
		message = message[size:]
		if err := f(number, value, n); err != nil {
			return err
		}
	}
	return nil
}

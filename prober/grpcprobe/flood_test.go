package grpcprobe_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeletkit/kubeletkit/prober/grpcprobe"
)

// Types and flags of frames (RFC 9113).
const (
	dataFrame, headersFrame, priorityFrame, resetFrame, settingsFrame, pushFrame = 0, 1, 2, 3, 4, 5
	pingFrame, goAwayFrame, windowFrame, continuationFrame, unknownFrame         = 6, 7, 8, 9, 200

	ack, endStream, endHeaders = 1, 1, 4
)

func h2(kind, flags byte, stream uint32, payload string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	b = append(b, flags)
	return string(binary.BigEndian.AppendUint32(b, stream)) + payload
}

func fields(pairs ...string) string {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(pairs); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return b.String()
}

// counted counts what is written to it.
type counted struct{ n atomic.Int64 }

func (c *counted) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// Whatever a server sends without end, a check reads a bounded part of it, logs nothing for it, and leaves nothing.
func TestFloods(t *testing.T) {
	var logged counted
	defer log.SetOutput(log.Writer())
	log.SetOutput(&logged) // where net/http logs
	answer := h2(headersFrame, endHeaders, 1, fields(":status", "200", "content-type", "application/grpc"))
	long := strings.Repeat("x", 8<<10)
	for name, flood := range map[string]struct{ first, again string }{
		"settings":             {"", h2(settingsFrame, 0, 0, "")},
		"acknowledgments":      {"", h2(settingsFrame, ack, 0, "")},
		"table sizes":          {"", h2(settingsFrame, 0, 0, "\x00\x01\xff\xff\xff\xff\x00\x06\x00\x00\x00\x00")},
		"pings":                {"", h2(pingFrame, 0, 0, "12345678")},
		"pongs":                {"", h2(pingFrame, ack, 0, "12345678")},
		"resets":               {"", h2(resetFrame, 0, 3, "\x00\x00\x00\x08")},
		"windows":              {"", h2(windowFrame, 0, 0, "\x00\x00\x00\x01")},
		"windows of none":      {"", h2(windowFrame, 0, 1, "\x00\x00\x00\x00")},
		"priorities":           {"", h2(priorityFrame, 0, 1, "\x00\x00\x00\x00\x01")},
		"unknown":              {"", h2(unknownFrame, 0, 1, "")},
		"unknown, long":        {"", h2(unknownFrame, 0, 1, long)},
		"pushes":               {"", h2(pushFrame, endHeaders, 1, "\x00\x00\x00\x02")},
		"goodbyes":             {"", h2(goAwayFrame, 0, 0, "\x7f\xff\xff\xff\x00\x00\x00\x00"+long)},
		"continuations":        {h2(headersFrame, 0, 1, fields(":status", "200")), h2(continuationFrame, 0, 1, fields("k", long))},
		"empty continuations":  {h2(headersFrame, 0, 1, fields(":status", "200")), h2(continuationFrame, 0, 1, "")},
		"headers before":       {"", h2(headersFrame, endHeaders, 1, fields(":status", "103", "link", long))},
		"small headers before": {"", h2(headersFrame, endHeaders, 1, fields(":status", "103"))},
		"headers of others":    {"", h2(headersFrame, endHeaders, 3, fields(":status", "200"))},
		"metadata":             {h2(headersFrame, 0, 1, fields(":status", "200", "content-type", "application/grpc")), h2(continuationFrame, 0, 1, "\xbe\xbe\xbe\xbe")},
		"data":                 {answer, h2(dataFrame, 0, 1, long)},
		"empty data":           {answer, h2(dataFrame, 0, 1, "")},
		"data of others":       {answer, h2(dataFrame, 0, 3, long)},
		"trailers":             {answer, h2(headersFrame, endHeaders, 1, fields("grpc-status", "0"))},
		"long trailers":        {answer + h2(headersFrame, endStream, 1, fields("grpc-status", "0")), h2(continuationFrame, 0, 1, fields("k", long))},
	} {
		t.Run(name, func(t *testing.T) {
			logged.n.Store(0)
			var sent int64
			ended := make(chan struct{})
			client := &grpcprobe.Client{Dial: func(context.Context, string, string) (net.Conn, error) {
				conn, server := net.Pipe() // without a buffer: what is sent is read
				go func() { _, _ = io.Copy(io.Discard, server) }()
				go func() {
					defer close(ended)
					first := h2(settingsFrame, 0, 0, "") + flood.first
					for next := first; ; next = flood.again {
						n, err := io.WriteString(server, next)
						sent += int64(n)
						if err != nil {
							return
						}
					}
				}()
				return conn, nil
			}}
			healthy, message := client.Probe(t.Context(), "pod:1", "", timeout)
			<-ended
			assert.False(t, healthy)
			assert.True(t, strings.HasPrefix(message, "error: health rpc probe failed: "), message)
			assert.Less(t, sent, int64(512<<10))
			assert.Less(t, logged.n.Load(), int64(1<<10), "log")
		})
	}
}

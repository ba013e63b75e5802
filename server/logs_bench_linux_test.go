package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/server"
)

// BenchmarkIdleFollowers measures the CPU time of the process in a second in which clients follow a log
// to which nothing is written. Without clients it is that of the idle process.
func BenchmarkIdleFollowers(b *testing.B) {
	for _, clients := range []int{0, 50} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			n := newNode(b)
			writeLog(b, n.start("main"), 64<<10)
			mux := http.NewServeMux()
			mux.Handle("GET /containerLogs/{namespace}/{pod}/{container}", server.ContainerLogs(n, server.Options{}))
			srv := httptest.NewServer(mux)
			defer srv.Close()
			for range clients {
				resp, err := srv.Client().Get(srv.URL + logPath + "?follow=true")
				require.NoError(b, err)
				defer resp.Body.Close()
				_, err = io.CopyN(io.Discard, resp.Body, 32<<10)
				require.NoError(b, err)
			}
			time.Sleep(time.Second) // what follows the requests is over
			before, began := cpuTime(b), time.Now()
			for b.Loop() {
				time.Sleep(time.Second)
			}
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/time.Since(began).Seconds(), "cpu-us/s")
			n.exit(0)
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

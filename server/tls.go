package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/logging"
)

// TLSOptions are the options of [ServeTLS]. GetCertificate is required.
type TLSOptions struct {
	// GetCertificate returns the certificate of the server, see [tls.Config]. It is called in each
	// handshake. If it fails, so does the handshake.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// MinVersion is the lowest version of TLS. Default [tls.VersionTLS12].
	MinVersion uint16
	// CipherSuites are those for TLS 1.2. Default: those of package tls. Those of TLS 1.3 cannot
	// be chosen.
	CipherSuites []uint16
	// Curves are the mechanisms of key exchange. Default: those of package tls.
	Curves []tls.CurveID
	// Logger receives errors of connections, such as handshakes that fail. Default: that of package slog.
	Logger logr.Logger
}

// ServeTLS serves the handler as [Serve] does, by TLS and HTTP/1.1. Clients may show a
// certificate, which the handler finds in [http.Request].TLS and has to verify, see package
// server/auth.
//
// HTTP/2 is not offered. A client of it could stop to read one of the streams of a connection
// forever without being noticed, and logs would be slower.
func ServeTLS(ctx context.Context, l net.Listener, h http.Handler, opts TLSOptions) error {
	opts.Logger = logging.OrDefault(opts.Logger)
	if opts.GetCertificate == nil {
		return errors.New("server: TLSOptions.GetCertificate is required")
	}
	config := &tls.Config{
		GetCertificate: opts.GetCertificate, MinVersion: opts.MinVersion, CipherSuites: opts.CipherSuites,
		CurvePreferences: opts.Curves,
		ClientAuth:       tls.RequestClientCert, NextProtos: []string{"http/1.1"},
	}
	if config.MinVersion == 0 {
		config.MinVersion = tls.VersionTLS12
	}
	return serve(ctx, l, h, config, slog.NewLogLogger(logr.ToSlogHandler(opts.Logger.V(1)), slog.LevelInfo))
}

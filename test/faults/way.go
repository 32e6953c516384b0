package faults

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// Way is a way to a registry, over TLS with a certificate of its own. Until its
// fault begins it passes everything on as it is.
type Way struct {
	// Host is host:port, to be used in image references in place of the registry's.
	Host string
	// CertificatePEM is what a client has to trust.
	CertificatePEM []byte

	server *http.Server
	fault  Fault

	mutex sync.Mutex
	met   int
}

// Fault is how a registry fails. Each is for one Way.
type Fault interface {
	// fails reports whether a request meets the fault, and may change what is
	// read of its body.
	fails(r *http.Request) bool
	// answer is what such a request gets.
	answer(w http.ResponseWriter)
}

// Open makes a way to the registry, host:port, on a free port of an address. The
// registry's certificate is one of roots.
func Open(address, registry string, roots *x509.CertPool, fault Fault) (*Way, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, err
	}
	certificate, pem, err := selfSigned(address)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	w := &Way{Host: listener.Addr().String(), CertificatePEM: pem, fault: fault}
	w.server = &http.Server{
		Handler:           w.handler(registry, roots),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1: a connection is one request's
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // faults are meant
	}
	go func() { _ = w.server.ServeTLS(listener, "", "") }() // it ends with Close
	return w, nil
}

// Close ends the way and the connections on it.
func (w *Way) Close() error { return w.server.Close() }

// Met is how many requests met the fault.
func (w *Way) Met() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.met
}

func (w *Way) handler(registry string, roots *x509.CertPool) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: registry})
			// The registry says by these where an upload goes on: here.
			r.SetXForwarded()
			r.Out.Host = r.In.Host
		},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
		ErrorLog:  log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // the connection ends without an answer
		},
	}
	return http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		if w.fails(r) {
			w.fault.answer(answer)
			return
		}
		proxy.ServeHTTP(answer, r)
	})
}

func (w *Way) fails(r *http.Request) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	failed := w.fault.fails(r)
	if failed {
		w.met++
	}
	return failed
}

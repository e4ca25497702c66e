package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"

	"umbra/internal/errs"
)

// S3 is a store below a prefix of a bucket. Each operation is tried three times.
type S3 struct {
	client *s3.Client
	bucket string
	prefix string // empty, or ends with a slash
	tune   Tuning
}

// Tuning are the limits of an S3 store; zero values are replaced by defaults.
type Tuning struct {
	Attempts int           // of one request; 3
	Backoff  time.Duration // the longest pause between two; 1 s
	// Answer is how long the store may take until it answers a request that was
	// sent, and how long a body may make no progress; 20 s.
	Answer time.Duration
	// Part is the size above which an object is sent in parts, and of a part;
	// 64 MiB. S3 takes 10,000 of at least 5 MiB.
	Part int64
}

func (t Tuning) withDefaults() Tuning {
	if t.Attempts == 0 {
		t.Attempts = 3
	}
	if t.Backoff == 0 {
		t.Backoff = time.Second
	}
	if t.Answer == 0 {
		t.Answer = 20 * time.Second
	}
	if t.Part == 0 {
		t.Part = 64 << 20
	}
	return t
}

// OpenS3 prepares a store; it sends nothing to it. Credentials come from the AWS
// SDK's chain when the first request needs them. Errors: *errs.Error with code
// blobs_url_invalid or blobs_credentials.
func OpenS3(ctx context.Context, l Location, tune Tuning) (*S3, error) {
	tune = tune.withDefaults()
	// Amazon's stores speak HTTP/1.1, and others' HTTP/2 shares one connection among
	// all requests, which a lost packet then stops together.
	client := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = 64
		t.ResponseHeaderTimeout = tune.Answer
		t.ForceAttemptHTTP2 = false
	}).WithDialerOptions(func(d *net.Dialer) { d.Timeout = min(5*time.Second, tune.Answer) })
	retrier := func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = tune.Attempts
			o.MaxBackoff = tune.Backoff
			o.RateLimiter = ratelimit.None // the attempts are bounded, and each error must show its cause
		})
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(client), config.WithRetryer(retrier), config.WithLogger(logging.Nop{}))
	if err != nil {
		return nil, errs.New(errs.Unavailable, "blobs_credentials", "Bucket %s: the AWS SDK's settings cannot be read: %v.", l.Bucket, err)
	}
	switch {
	case l.Region != "":
		cfg.Region = l.Region
	case cfg.Region == "" && l.Endpoint != "":
		cfg.Region = "us-east-1" // what others' stores call theirs
	case cfg.Region == "":
		return nil, errs.New(errs.Invalid, "blobs_url_invalid", "cluster.blobs: region is missing; add ?region=… or set AWS_REGION.")
	}
	s := &S3{bucket: l.Bucket, tune: tune, client: s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = l.PathStyle
		if l.Endpoint != "" {
			o.BaseEndpoint = aws.String(l.Endpoint)
		}
		// A body is signed with its SHA-256, so a store cannot take a damaged one.
		// The checksums that the SDK would add beyond that are unknown to some stores.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.DisableLogOutputChecksumValidationSkipped = true
	})}
	if l.Prefix != "" {
		s.prefix = l.Prefix + "/"
	}
	return s, nil
}

// fail makes the *Error of a request; nil stays nil.
func (s *S3) fail(ctx context.Context, op, key string, err error) error {
	if err == nil {
		return nil
	}
	kind, cause := classify(err)
	return fail(ctx, op, key, kind, cause)
}

// classify returns what an error of the SDK means, and a cause without the SDK's
// layers and request IDs.
func classify(err error) (Kind, error) {
	status := 0
	if r, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		status = r.HTTPStatusCode()
	}
	code := ""
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		code = api.ErrorCode()
		err = errors.New(strings.TrimSuffix(strings.TrimSpace(code+": "+api.ErrorMessage()), "."))
		if api.ErrorMessage() == "" {
			err = fmt.Errorf("%s (status %d)", code, status)
		}
	}
	switch code {
	case "NoSuchKey":
		return NotFound, errMissing
	case "NoSuchBucket":
		return Refused, errNoBucket
	case "InvalidRange":
		return TooShort, errEnds
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
		"XAdminUserNotFound", // versitygw's InvalidAccessKeyId, with status 404
		"InvalidSecurity", "UnrecognizedClientException", "AuthorizationHeaderMalformed", "MissingSecurityHeader":
		return Credentials, err
	}
	if signing(err) {
		return Credentials, err
	}
	// A 404 without a code that is known may be a proxy's, and says nothing of the object.
	switch {
	case status == http.StatusUnauthorized:
		return Credentials, err
	case status == http.StatusRequestedRangeNotSatisfiable:
		return TooShort, errEnds
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		return Unreachable, err
	case status >= 300:
		return Refused, err
	}
	return Unreachable, err
}

// errNoBucket is the cause of Refused where the bucket does not exist.
var errNoBucket = errors.New("the bucket does not exist")

// signing reports whether an error is of the step in which credentials are found.
// The SDK wraps it in *v4.SigningError or gives a text alone, by the step.
func signing(err error) bool {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if strings.Contains(fmt.Sprintf("%T", e), "SigningError") {
			return true
		}
	}
	return strings.Contains(err.Error(), "get identity: ")
}

// Delete implements Store.
func (s *S3) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return fail(ctx, opDelete, key, Refused, err)
	}
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: aws.String(s.prefix + key)})
	if err = s.fail(ctx, opDelete, key, err); Is(err, NotFound) {
		return nil
	}
	return err
}

// List implements Store. The store must list keys in bytewise order, as all but
// Amazon's directory buckets do; another order is an error.
func (s *S3) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.prefix + prefix)}
		if after != "" {
			in.StartAfter = aws.String(s.prefix + after)
		}
		last := ""
		for pages := s3.NewListObjectsV2Paginator(s.client, in); pages.HasMorePages(); {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(Object{}, s.fail(ctx, opList, prefix, err))
				return
			}
			for _, o := range page.Contents {
				key, ok := strings.CutPrefix(aws.ToString(o.Key), s.prefix)
				if !ok || last != "" && key <= last {
					yield(Object{}, fail(ctx, opList, prefix, Refused, fmt.Errorf("the store lists %q after %q", aws.ToString(o.Key), s.prefix+last)))
					return
				}
				last = key
				if !yield(Object{key, aws.ToInt64(o.Size), aws.ToTime(o.LastModified)}, nil) {
					return
				}
			}
		}
	}
}

// section returns a body that the SDK can send again.
func section(body io.ReaderAt, offset, n int64) *io.SectionReader {
	return io.NewSectionReader(body, offset, n)
}

// Versioning reports whether the bucket keeps the versions of objects that were
// removed or replaced.
func (s *S3) Versioning(ctx context.Context) (bool, error) {
	out, err := s.client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &s.bucket})
	if err != nil {
		return false, s.fail(ctx, opVersioning, "", err)
	}
	return out.Status == types.BucketVersioningStatusEnabled, nil
}

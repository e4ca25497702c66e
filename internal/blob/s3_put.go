package blob

import (
	"context"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"
)

// maxParts is S3's limit.
const maxParts = 10_000

// Put implements Store. A large object is sent in parts, four at a time. Parts of
// one that was cut off by the end of the process stay in the store, unseen; a
// lifecycle rule of the bucket removes them.
func (s *S3) Put(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	if err := checkKey(key); err != nil {
		return fail(ctx, opPut, key, Refused, err)
	}
	if size > s.tune.Part {
		return s.fail(ctx, opPut, key, s.putParts(ctx, aws.String(s.prefix+key), body, size))
	}
	_, err := s.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &s.bucket, Key: aws.String(s.prefix + key),
		Body: section(body, 0, size), ContentLength: &size})
	return s.fail(ctx, opPut, key, err)
}

func (s *S3) putParts(ctx context.Context, key *string, body io.ReaderAt, size int64) (err error) {
	begun, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &s.bucket, Key: key})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			// The caller may have gone, and the parts would be kept, and paid for.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			_, _ = s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.bucket, Key: key, UploadId: begun.UploadId})
		}
	}()
	part := max(s.tune.Part, (size+maxParts-1)/maxParts)
	parts := make([]types.CompletedPart, (size+part-1)/part)
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i := range parts {
		group.Go(func() error {
			number, offset := aws.Int32(int32(i+1)), int64(i)*part
			n := min(part, size-offset)
			done, err := s.client.UploadPart(within, &s3.UploadPartInput{Bucket: &s.bucket, Key: key, UploadId: begun.UploadId,
				PartNumber: number, Body: section(body, offset, n), ContentLength: &n})
			if err == nil {
				parts[i] = types.CompletedPart{ETag: done.ETag, PartNumber: number}
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	_, err = s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{Bucket: &s.bucket, Key: key, UploadId: begun.UploadId,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts}})
	return err
}

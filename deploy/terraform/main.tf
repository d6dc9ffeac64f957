# The store of a lake in AWS: two buckets, and what jobs and analysts may do there.

terraform {
  required_version = ">= 1.6"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
    }
  }
}

variable "lake_bucket" {
  description = "Bucket of the warehouse"
  type        = string
}

variable "export_bucket" {
  description = "Bucket of the weekly files"
  type        = string
}

variable "audiences" {
  description = "Prefix in the export bucket of each audience's root (LAKEHOUSE_EXPORT_AUDIENCE, LAKEHOUSE_EXPORT_ROOT)"
  type        = map(string)
  default     = { analysts = "analysts", partners = "partners" }
}

variable "trusted" {
  description = "ARN of the role or user that the hosts or pods of drivers and executors have, which may take the jobs' role"
  type        = string
}

locals {
  buckets = { lake = var.lake_bucket, export = var.export_bucket }
}

resource "aws_s3_bucket" "this" {
  for_each = local.buckets
  bucket   = each.value
}

resource "aws_s3_bucket_public_access_block" "this" {
  for_each                = aws_s3_bucket.this
  bucket                  = each.value.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  for_each = aws_s3_bucket.this
  bucket   = each.value.id
  rule {
    bucket_key_enabled = true
    apply_server_side_encryption_by_default {
      sse_algorithm = "aws:kms"
    }
  }
}

# Off: Iceberg never changes a file, and versions would keep what maintenance expires and `lakehouse erase` deletes.
resource "aws_s3_bucket_versioning" "this" {
  for_each = aws_s3_bucket.this
  bucket   = each.value.id
  versioning_configuration {
    status = "Disabled"
  }
}

# No rule deletes objects by age: a file of a table is needed until Iceberg has expired it.
resource "aws_s3_bucket_lifecycle_configuration" "this" {
  for_each = aws_s3_bucket.this
  bucket   = each.value.id
  rule {
    id     = "dead-uploads"
    status = "Enabled"
    filter {}
    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }
}

resource "aws_s3_bucket_policy" "only_tls" {
  for_each = aws_s3_bucket.this
  bucket   = each.value.id
  policy   = data.aws_iam_policy_document.only_tls[each.key].json
}

data "aws_iam_policy_document" "only_tls" {
  for_each = aws_s3_bucket.this
  statement {
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [each.value.arn, "${each.value.arn}/*"]
    principals {
      type        = "*"
      identifiers = ["*"]
    }
    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

# Drivers, executors and the Thrift server.
data "aws_iam_policy_document" "jobs" {
  statement {
    actions   = ["s3:ListBucket", "s3:GetBucketLocation", "s3:ListBucketMultipartUploads"]
    resources = [for bucket in aws_s3_bucket.this : bucket.arn]
  }
  statement {
    actions = [
      "s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts",
    ]
    resources = [for bucket in aws_s3_bucket.this : "${bucket.arn}/*"]
  }
}

# Readers of weekly files, each audience of its prefix alone: files of two audiences undo the suppression of small groups.
# Tables hold raw personal data: readers have no right in the lake's bucket.
data "aws_iam_policy_document" "readers" {
  for_each = var.audiences
  statement {
    actions   = ["s3:ListBucket"]
    resources = [aws_s3_bucket.this["export"].arn]
    condition {
      test     = "StringLike"
      variable = "s3:prefix"
      values   = ["${each.value}/*"]
    }
  }
  statement {
    actions   = ["s3:GetObject"]
    resources = ["${aws_s3_bucket.this["export"].arn}/${each.value}/*"]
  }
}

data "aws_iam_policy_document" "trust" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "AWS"
      identifiers = [var.trusted]
    }
  }
}

resource "aws_iam_role" "jobs" {
  name               = "lakehouse-jobs"
  assume_role_policy = data.aws_iam_policy_document.trust.json
}

resource "aws_iam_role_policy" "jobs" {
  name   = "store"
  role   = aws_iam_role.jobs.id
  policy = data.aws_iam_policy_document.jobs.json
}

resource "aws_iam_policy" "readers" {
  for_each = data.aws_iam_policy_document.readers
  name     = "lakehouse-${each.key}"
  policy   = each.value.json
}

output "jobs_role" {
  description = "What drivers and executors run with"
  value       = aws_iam_role.jobs.arn
}

output "reader_policies" {
  description = "For the group of each audience"
  value       = { for audience, policy in aws_iam_policy.readers : audience => policy.arn }
}

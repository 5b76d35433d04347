import {
  to = gpu_share.ocr
  id = "infer01/vision-ocr"
}
